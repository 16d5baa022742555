// Softmax cross-entropy of one row of logits; the gradient replaces the logits.
//
// Tiling: a call computes one row, in vectors of 16 logits, in three passes: the maximum, the exponentials and their
// sum, and the gradient, if params.needs_gradient. One vector of maxima and one vector of partial sums are in
// registers; the sums of 64 vectors at a time are added in fp64. Only a gradient in bf16 needs scratch memory: 4 bytes
// per logit for the exponentials. With a gradient, a row of 33278 logits takes 130 KiB in fp32, or 65 KiB plus 130 KiB
// of scratch memory in bf16, so it stays in the L2 cache.
#pragma once

#include <cstddef>
#include <type_traits>
#include <vector>

#include "cpu/simd.h"
#include "cross_entropy_params.h"

namespace mh::kernels {

// cross_entropy_row(), compiled for one instruction set (cpu/simd.h). exponentials: scratch (vocabulary), used if
// params.needs_gradient; in fp32 the address of the logits, which the gradient overwrites anyway.
template <SimdLevel, class T>
struct CrossEntropyLoops {
  static void compute(const CrossEntropyParams& params, T* logits, int64_t target, float* exponentials,
                      CrossEntropyLoss& result);
};

// Returns the loss of one row of logits (vocabulary). If params.needs_gradient, replaces the logits by the gradient of
// the smoothed loss. target: index in [0, vocabulary). T: float, or uint16_t for bf16.
template <class T>
CrossEntropyLoss cross_entropy_row(const CrossEntropyParams& params, T* logits, int64_t target) {
  CrossEntropyLoss result{};
  float* exponentials = nullptr;
  if constexpr (std::is_same_v<T, float>) {
    exponentials = logits;
  } else {
    thread_local std::vector<float> scratch;
    if (params.needs_gradient) scratch.resize(static_cast<size_t>(params.vocabulary_size));
    exponentials = scratch.data();
  }
  dispatch_simd_level([&](auto simd_level) {
    CrossEntropyLoops<simd_level, T>::compute(params, logits, target, exponentials, result);
  });
  return result;
}

}  // namespace mh::kernels
