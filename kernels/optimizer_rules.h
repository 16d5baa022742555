// Optimiser steps of one parameter element, for the loops on CPUs and GPUs. lib/train/optimizer.h has the formulas.
#pragma once

#include <cmath>
#include <cstdint>

#ifdef __CUDACC__
#define MH_EVERYWHERE __host__ __device__ inline
#else
#define MH_EVERYWHERE inline __attribute__((always_inline))
#endif

namespace mh::kernels {

struct AdamPlan {
  float lr, beta1, beta2, epsilon;
  float bias_correction1, bias_correction2;  // 1 - beta^t, or 1 without bias correction
  float decay;                               // lr * weight decay: p -= decay * p before the step
  float scale;  // factor of g: 1 / number of targets of the update, times the factor of gradient clipping
};

// Applies Adam with decoupled weight decay (AdamW).
MH_EVERYWHERE void adam_element(const AdamPlan& a, float step_size, float bias_correction2_sqrt, float& p, float g,
                                float& m, float& v) {
  const float gradient = a.scale * g;
  m = a.beta1 * m + (1 - a.beta1) * gradient;
  v = a.beta2 * v + (1 - a.beta2) * gradient * gradient;
  p = p - a.decay * p - step_size * m / (std::sqrt(v) / bias_correction2_sqrt + a.epsilon);
}

struct MomentumPlan {
  float lr, momentum;
  float decay;  // weight decay, added to the gradient
  float scale;  // factor of g: 1 / number of targets of the update, times the factor of gradient clipping
};

// Applies SGD with momentum, as torch.optim.SGD with dampening 0.
MH_EVERYWHERE void sgd_element(const MomentumPlan& a, float& p, float g, float& buffer) {
  buffer = a.momentum * buffer + a.scale * g + a.decay * p;
  p -= a.lr * buffer;
}

struct NagPlan {
  float lr, momentum;
  float lr_ratio;  // lr / lr of the previous update
  float decay;     // lr * weight decay
  float scale;     // factor of g: 1 / number of targets of the update, times the factor of gradient clipping
};

// Applies Nesterov's accelerated gradient with decoupled weight decay, as fairseq's optimiser nag.
MH_EVERYWHERE void nag_element(const NagPlan& a, float& p, float g, float& buffer) {
  const float m = a.momentum, gradient = a.scale * g;
  p = p * (1 - a.decay) + m * m * a.lr_ratio * buffer - (1 + m) * a.lr * gradient;
  buffer = m * a.lr_ratio * buffer - a.lr * gradient;
}

}  // namespace mh::kernels
