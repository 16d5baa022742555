// What stands behind each part of a layer: the sum of its input and its output, of which some may be dropped, and the
// layer norm of that: s = x + dropout(y), n = weight * (s - mean) * factor + bias, factor = 1 / sqrt(variance +
// epsilon).
#pragma once

#include <cstdint>

#include "dropout_plan.h"

namespace mh::kernels {

struct SumNorm {
  int64_t size = 0;                                // of a row
  const float *weight = nullptr, *bias = nullptr;  // (size)
  float epsilon = 0;
  const Dropout* dropout = nullptr;  // of y, or null: element i of row r by element dropout_first + r * size + i
  uint64_t dropout_first = 0;
};

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
