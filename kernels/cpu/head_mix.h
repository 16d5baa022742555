// Linear maps across heads: y_i = Σ_j m[j, i] x_j, for one position of all heads at a time.
#pragma once

#include <cstdint>

#include "cpu/simd.h"

namespace mh::kernels {

// Elements of a head that are mixed at a time. The strides of heads are often powers of two, so that heads evict each
// other from the cache; a chunk of this width of every head is therefore copied to adjacent memory.
constexpr int64_t kMixWidth = 128;

// One position: head j of x starts at x + j * x_stride and has `count` elements, and head i of y likewise.
struct HeadMix {
  int64_t in, out;  // heads of x and of y
  int64_t x_stride, y_stride;
  int64_t count;
};

// The gradients at the same position: dx_j = Σ_i m[j, i] dy_i, with stride dx_stride, which is that of x or, if dx is
// dy, that of y; and dm[j, i] += Σ_s x_j[s] dy_i[s], as 16 partial sums each: dm (in, out, 16). dx or dm may be null.
template <class T>
struct HeadMixGradients {
  const T *x, *dy;
  T* dx;
  int64_t dx_stride;
  float* dm;
};

// T: float, or uint16_t for bf16.
template <Level, class T>
struct HeadMixLoops {
  static void forward(const HeadMix& params, const float* m, const T* x, T* y, float* scratch);
  static void backward(const HeadMix& params, const float* m, const HeadMixGradients<T>& g, float* scratch);
};

// Returns the scratch memory of either function in floats.
inline int64_t head_mix_scratch(int64_t in, int64_t out) { return (in + out) * kMixWidth; }

// m (in, out). y may be x if the strides are equal.
template <class T>
void mix_heads(const HeadMix& params, const float* m, const T* x, T* y, float* scratch) {
  at_level([&](auto at) { HeadMixLoops<at, T>::forward(params, m, x, y, scratch); });
}

template <class T>
void mix_heads_backward(const HeadMix& params, const float* m, const HeadMixGradients<T>& g, float* scratch) {
  at_level([&](auto at) { HeadMixLoops<at, T>::backward(params, m, g, scratch); });
}

}  // namespace mh::kernels
