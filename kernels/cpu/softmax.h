// Rows of logits to probabilities and back. Masked entries become exactly 0; a row without an allowed entry, or whose
// allowed entries are all minus infinity, becomes zeros.
#pragma once

#include <cstdint>

namespace mh::kernels {

enum class SoftmaxOf {
  exponential,  // p ∝ exp(a)
  sigmoid       // p ∝ exp(a) σ(a)
};

// a (n) -> p (n), which may be the same. allowed (n), or null: all.
void softmax_row(SoftmaxOf of, const float* a, const bool* allowed, float* p, int64_t n);

// da from dp, which may be the same; a is read for `sigmoid` only.
void softmax_row_backward(SoftmaxOf of, const float* a, const float* p, const float* dp, float* da, int64_t n);

}  // namespace mh::kernels
