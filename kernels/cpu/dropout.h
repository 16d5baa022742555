// Dropout on the CPU.
#pragma once

#include "dropout_plan.h"

namespace mh::kernels {

Dropout make_dropout(const uint32_t key[2], uint32_t update, uint32_t site, double p);

// y[i] = kept(first + i) ? x[i] * scale : 0, for i < count. x and y may be the same. The second takes bf16.
void dropout(const Dropout& how, uint64_t first, const float* x, float* y, int64_t count);
void dropout(const Dropout& how, uint64_t first, const uint16_t* x, uint16_t* y, int64_t count);

}  // namespace mh::kernels
