// The residual sums and layer norms of sum_norm_plan.h, and their gradients, by rows.
#pragma once

#include "cpu/simd.h"
#include "sum_norm_plan.h"

namespace mh::kernels {

// Y: the type of y and dy, float, or uint16_t for bf16.
template <Level, class Y>
struct SumNormLoops {
  static void forward(const SumNorm& params, const SumNormTensors& x, int64_t first, int64_t rows, float* scratch);
  static void backward(const SumNorm& params, const SumNormTensors& x, int64_t first, int64_t rows, float* scratch);
};

// Returns the scratch memory of a call in floats.
inline int64_t sum_norm_scratch(const SumNorm& params) { return params.size + 2 * 64; }  // two groups of decisions

// Computes rows first … first + rows - 1 of the tensors.
template <class Y>
void sum_norm(const SumNorm& params, const SumNormTensors& x, int64_t first, int64_t rows, float* scratch) {
  at_level([&](auto at) { SumNormLoops<at, Y>::forward(params, x, first, rows, scratch); });
}

// Computes the gradients of x and y of these rows, which are in one chunk, and adds to the chunk's dweight and dbias.
template <class Y>
void sum_norm_backward(const SumNorm& params, const SumNormTensors& x, int64_t first, int64_t rows, float* scratch) {
  at_level([&](auto at) { SumNormLoops<at, Y>::backward(params, x, first, rows, scratch); });
}

}  // namespace mh::kernels
