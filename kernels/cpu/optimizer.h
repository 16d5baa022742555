// Optimiser updates in one pass over memory. Each acts on [begin, end) of arrays of the same length.
#pragma once

#include "optimizer_rules.h"

namespace mh::kernels {

void adam(const AdamPlan& plan, int64_t begin, int64_t end, float* p, const float* g, float* m, float* v);
void sgd(const MomentumPlan& plan, int64_t begin, int64_t end, float* p, const float* g, float* buffer);
void nag(const NagPlan& plan, int64_t begin, int64_t end, float* p, const float* g, float* buffer);

// Sum of squares, in fp64.
double squares(const float* x, int64_t begin, int64_t end);

}  // namespace mh::kernels
