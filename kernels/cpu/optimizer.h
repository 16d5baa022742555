// Optimiser updates in one pass over memory. Each acts on [begin, end) of arrays of the same length; formulas in
// lib/train/optimizer.h.
#pragma once

#include <cstdint>

namespace mh::kernels {

struct AdamPlan {
  float lr, beta1, beta2, epsilon;
  float correction1, correction2;  // 1 - beta^t, or 1 without bias correction
  float decay;                     // lr * weight decay: p -= decay * p before the step
  float scale;                     // the gradient is scale * g
};
void adam(const AdamPlan& plan, int64_t begin, int64_t end, float* p, const float* g, float* m, float* v);

struct MomentumPlan {
  float lr, momentum, decay, scale;  // decay: weight decay, added to the gradient
};
// buf = momentum * buf + g + decay * p; p -= lr * buf
void sgd(const MomentumPlan& plan, int64_t begin, int64_t end, float* p, const float* g, float* buffer);

struct NagPlan {
  float lr, momentum, correction;  // correction: lr / lr of the update before
  float decay;                     // lr * weight decay
  float scale;
};
void nag(const NagPlan& plan, int64_t begin, int64_t end, float* p, const float* g, float* buffer);

// Sum of squares, in fp64.
double squares(const float* x, int64_t begin, int64_t end);

}  // namespace mh::kernels
