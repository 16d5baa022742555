// Linear maps across heads: y_i = Σ_j m[j, i] x_j, where x_j and y_i are the vectors of head j and head i at one
// position.
//
// Tiling: a call computes one position. For each chunk of kMixWidth elements it copies all heads of x to scratch memory
// in fp32, mixes the copies, and writes the results to y. The inner loops (cpu/head_mix_chunk.h) keep a tile of results
// in registers: for y, four heads of y by 16 elements (four vectors), summed over all heads of x; for the gradient of
// m, four heads of x by two heads of y with 16 partial sums each (eight vectors), summed over the elements of a chunk.
// Scratch memory takes 512 * (num_in_heads + num_out_heads) bytes, and the partial sums of the gradient of m take
// `64 * num_in_heads * num_out_heads` bytes: for 16 heads, 16 KiB each. Heads of 512 elements have 4 chunks.
#pragma once

#include <cstdint>

#include "cpu/simd.h"

namespace mh::kernels {

// Number of elements of each head that are mixed at a time (a chunk). Head strides are often powers of two, so that
// heads evict each other from the cache; therefore the chunks of all heads are first copied to adjacent memory.
constexpr int64_t kMixWidth = 128;

// The sizes of a map at one position: head j of x, of `count` elements, starts at x + j * x_stride, and head i of y,
// also of `count` elements, at y + i * y_stride.
struct HeadMixParams {
  int64_t num_in_heads, num_out_heads;  // number of heads of x; number of heads of y
  int64_t x_stride, y_stride;
  int64_t count;
};

// The gradients at one position: dx_j = Σ_i m[j, i] dy_i, with head stride dx_stride, and dm[j, i] += Σ_s x_j[s]
// dy_i[s]. dy has head stride y_stride. dm (num_in_heads, num_out_heads, 16) has 16 partial sums of each element, which
// the caller adds up. dx may be the same memory as dy if dx_stride equals y_stride. A null dx or dm is not computed.
template <class T>
struct HeadMixGradients {
  const T *x, *dy;
  T* dx;
  int64_t dx_stride;
  float* dm;
};

// mix_heads() and mix_heads_backward(), compiled for one instruction set (cpu/simd.h). T: float, or uint16_t for bf16.
template <SimdLevel, class T>
struct HeadMixLoops {
  static void forward(const HeadMixParams& params, const float* m, const T* x, T* y, float* scratch);
  static void backward(const HeadMixParams& params, const float* m, const HeadMixGradients<T>& g, float* scratch);
};

// Returns the number of floats of scratch memory that mix_heads() or mix_heads_backward() needs.
inline int64_t head_mix_scratch_floats(int64_t num_in_heads, int64_t num_out_heads) {
  return (num_in_heads + num_out_heads) * kMixWidth;
}

// Computes y = mᵀ x across heads, with m (num_in_heads, num_out_heads). y may be x if x_stride equals y_stride.
template <class T>
void mix_heads(const HeadMixParams& params, const float* m, const T* x, T* y, float* scratch) {
  dispatch_simd_level([&](auto simd_level) { HeadMixLoops<simd_level, T>::forward(params, m, x, y, scratch); });
}

// Computes g.dx, and adds to g.dm, the gradients of mix_heads() with respect to x and m.
template <class T>
void mix_heads_backward(const HeadMixParams& params, const float* m, const HeadMixGradients<T>& g, float* scratch) {
  dispatch_simd_level([&](auto simd_level) { HeadMixLoops<simd_level, T>::backward(params, m, g, scratch); });
}

}  // namespace mh::kernels
