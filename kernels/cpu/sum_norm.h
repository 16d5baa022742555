// Dropout, residual sum and norm (sum_norm_params.h), and their gradients, on a CPU, for a range of rows.
//
// Tiling: a call computes rows one after another, in vectors of 16 elements, with one or two vectors of partial sums in
// registers. The forward pass reads a row three times: first for the sum and the mean, then for the variance or, for an
// RMS norm, the mean square, last to normalise. The backward pass reads a row twice: first for two means and for the
// gradients of weight and bias, then for dx and dy. A row stays in the L1 or L2 cache. For rows of 1024 elements, as
// with 16 heads of size 64, and y in fp32, the forward pass takes 24 KiB for x, y, `sum`, `norm`, `weight` and `bias`,
// and the backward pass 32 KiB for `sum`, dsum, dnorm, dx, dy, `weight`, dweight and dbias. With y in bf16 each takes 2
// KiB less. The scratch memory of 4 * (size + 128) bytes, 4.5 KiB, has the dropout mask of a row.
#pragma once

#include "cpu/simd.h"
#include "sum_norm_params.h"

namespace mh::kernels {

// sum_norm() and sum_norm_backward(), compiled for one instruction set (cpu/simd.h). Y: type of y and dy: float, or
// uint16_t for bf16.
template <SimdLevel, class Y>
struct SumNormLoops {
  static void forward(const SumNormParams& params, const SumNormTensors& tensors, int64_t first, int64_t rows,
                      float* scratch);
  static void backward(const SumNormParams& params, const SumNormTensors& tensors, int64_t first, int64_t rows,
                       float* scratch);
};

// Returns the number of floats of scratch memory for one call of sum_norm() or sum_norm_backward(): the dropout mask of
// a row, and 2 * kDropoutGroupSize floats of padding.
inline int64_t sum_norm_scratch_floats(const SumNormParams& params) { return params.size + 2 * 64; }

// Computes `rows` rows, from row `first` on, of tensors.sum, tensors.norm, tensors.mean and tensors.rstd. Tensors that
// are null are not written; tensors.sum and tensors.norm must not both be null.
template <class Y>
void sum_norm(const SumNormParams& params, const SumNormTensors& tensors, int64_t first, int64_t rows, float* scratch) {
  dispatch_simd_level(
      [&](auto simd_level) { SumNormLoops<simd_level, Y>::forward(params, tensors, first, rows, scratch); });
}

// Computes `rows` rows, from row `first` on, of tensors.dx and tensors.dy, and adds the gradients of weight and bias
// from these rows to tensors.dweight and, if it is not null, tensors.dbias. tensors.dy must not be null; without
// dropout and with `Y = float`, dy equals dx and may be the same memory as tensors.dx. All rows must belong to one
// chunk of tensors.chunk_rows rows; only the row of this chunk in tensors.dweight and tensors.dbias is updated.
template <class Y>
void sum_norm_backward(const SumNormParams& params, const SumNormTensors& tensors, int64_t first, int64_t rows,
                       float* scratch) {
  dispatch_simd_level(
      [&](auto simd_level) { SumNormLoops<simd_level, Y>::backward(params, tensors, first, rows, scratch); });
}

}  // namespace mh::kernels
