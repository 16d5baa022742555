// Softmax of rows, and its gradient. Masked entries become exactly 0; a row without an allowed entry, or whose allowed
// entries are all minus infinity, becomes zeros.
#pragma once

#include <cstdint>

#include "cpu/simd.h"

namespace mh::kernels {

enum class SoftmaxOf {
  exponential,  // p ∝ exp(a)
  sigmoid       // p ∝ exp(a) σ(a)
};

template <Level>
struct SoftmaxLoops {
  static void forward(SoftmaxOf of, const float* a, const bool* allowed, float* p, int64_t n);
  static void backward(SoftmaxOf of, const float* a, const float* p, const float* dp, float* da, int64_t n);
};

// Computes p (n) from a (n); they may be the same. allowed (n), or null: all.
inline void softmax_row(SoftmaxOf of, const float* a, const bool* allowed, float* p, int64_t n) {
  at_level([&](auto at) { SoftmaxLoops<at>::forward(of, a, allowed, p, n); });
}

// Computes da from dp; they may be the same. a is read for `sigmoid` only.
inline void softmax_row_backward(SoftmaxOf of, const float* a, const float* p, const float* dp, float* da, int64_t n) {
  at_level([&](auto at) { SoftmaxLoops<at>::backward(of, a, p, dp, da, n); });
}

}  // namespace mh::kernels
