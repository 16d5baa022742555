// Residual sum, dropout and layer norm (sum_norm_plan.h) and their gradients on a CPU, for a range of rows.
#pragma once

#include "cpu/simd.h"
#include "sum_norm_plan.h"

namespace mh::kernels {

// sum_norm() and sum_norm_backward(), compiled for one instruction set (cpu/simd.h). Y: type of y and dy: float, or
// uint16_t for bf16.
template <Level, class Y>
struct SumNormLoops {
  static void forward(const SumNorm& params, const SumNormTensors& tensors, int64_t first, int64_t rows,
                      float* scratch);
  static void backward(const SumNorm& params, const SumNormTensors& tensors, int64_t first, int64_t rows,
                       float* scratch);
};

// Returns the number of floats of scratch memory that one call needs: the dropout mask of a row, and padding.
inline int64_t sum_norm_scratch(const SumNorm& params) { return params.size + 2 * 64; }  // 64: kDropoutGroup

// Computes rows first … first + rows - 1 of tensors.sum, tensors.norm, tensors.mean and tensors.rstd.
template <class Y>
void sum_norm(const SumNorm& params, const SumNormTensors& tensors, int64_t first, int64_t rows, float* scratch) {
  dispatch_level([&](auto simd_level) { SumNormLoops<simd_level, Y>::forward(params, tensors, first, rows, scratch); });
}

// Computes rows first … first + rows - 1 of tensors.dx and tensors.dy, and adds the gradients of weight and bias from
// these rows to tensors.dweight and tensors.dbias. tensors.dy must not be null; without dropout and with Y = float, dy
// equals dx and may be the same memory as tensors.dx. The rows must be in one chunk of tensors.chunk_rows rows, whose
// row of tensors.dweight and tensors.dbias is updated.
template <class Y>
void sum_norm_backward(const SumNorm& params, const SumNormTensors& tensors, int64_t first, int64_t rows,
                       float* scratch) {
  dispatch_level(
      [&](auto simd_level) { SumNormLoops<simd_level, Y>::backward(params, tensors, first, rows, scratch); });
}

}  // namespace mh::kernels
