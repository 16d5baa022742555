// Softmax of one row, and its gradient. Masked entries become exactly 0. All entries become 0 in a fully masked row, in
// which no entry is allowed or all allowed entries are -inf.
//
// Tiling: a call computes one row, in vectors of 16 entries, with one vector of maxima or of partial sums in registers.
// The forward pass reads the row three times: for the maximum, for the exponentials and their sum, and to multiply by
// the inverse of the sum; the backward pass twice: for Σ p dp, and for da. There is no scratch memory. A row of 512
// entries takes 4.5 KiB in the forward pass (a, p and the mask) and 6 KiB in the backward pass (p, dp and da), so it
// stays in the L1 cache.
#pragma once

#include <cstdint>

#include "cpu/simd.h"

namespace mh::kernels {

// The function of the logit a to which a probability p is proportional.
enum class SoftmaxKind {
  softmax,    // p ∝ exp(a)
  sigsoftmax  // p ∝ exp(a) σ(a)
};

// softmax_row() and softmax_row_backward(), compiled for one instruction set (cpu/simd.h).
template <SimdLevel>
struct SoftmaxLoops {
  static void forward(SoftmaxKind kind, const float* a, const bool* is_allowed, float* p, int64_t n);
  static void backward(SoftmaxKind kind, const float* a, const float* p, const float* dp, float* da, int64_t n);
};

// Computes the probabilities p (n) of the logits a (n). p and a may be the same memory. is_allowed (n): whether an
// entry is not masked; null: no entry is masked.
inline void softmax_row(SoftmaxKind kind, const float* a, const bool* is_allowed, float* p, int64_t n) {
  dispatch_simd_level([&](auto simd_level) { SoftmaxLoops<simd_level>::forward(kind, a, is_allowed, p, n); });
}

// Computes da (n), the gradient of the logits, from the gradient dp (n) of the probabilities p (n). da and dp may be
// the same memory. a (n), the logits, is read for SoftmaxKind::sigsoftmax only.
inline void softmax_row_backward(SoftmaxKind kind, const float* a, const float* p, const float* dp, float* da,
                                 int64_t n) {
  dispatch_simd_level([&](auto simd_level) { SoftmaxLoops<simd_level>::backward(kind, a, p, dp, da, n); });
}

}  // namespace mh::kernels
