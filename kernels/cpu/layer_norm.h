// The sums and norms of sum_norm_plan.h, and their gradients, by rows.
#pragma once

#include "sum_norm_plan.h"

namespace mh::kernels {

// Floats of scratch memory that a call needs.
int64_t sum_norm_scratch(const SumNorm& how);

// Rows from the `first` on, so many of them; x, y, s, n, mean and factor point at what belongs to it. y is fp32 or
// bf16. n null: only the sum. s null: it is not kept. mean and factor (rows) may both be null.
template <class Y>
void sum_norm(const SumNorm& how, int64_t first, int64_t rows, const float* x, const Y* y, float* s, float* n,
              float* mean, float* factor, float* scratch);

// Gradients of x and y from those of n and s, of which one may be null; where dn is, so may be s, mean and factor.
// dweight and dbias (size) are added to.
template <class Y>
void sum_norm_backward(const SumNorm& how, int64_t first, int64_t rows, const float* dn, const float* ds,
                       const float* s, const float* mean, const float* factor, float* dx, Y* dy, float* dweight,
                       float* dbias, float* scratch);

}  // namespace mh::kernels
