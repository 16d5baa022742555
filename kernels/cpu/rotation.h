// Rotation of pairs of elements of heads by an angle for each position (rotary positions). Of the `head_size` elements
// of a head, the first `size` = 2n form n pairs, element j with element j + n:
//
//   y[j] = x[j] cos[j] - x[j + n] sin[j],   y[j + n] = x[j + n] cos[j] + x[j] sin[j],   j < n
//
// The other elements are copied. The inverse rotation has the opposite angles.
//
// Tiling: a call rotates all heads of a range of positions. The cosines and sines of a position, at most 2 KiB for
// heads of 512 elements, stay in the L1 cache for all heads. x is read once, and y written once, in vectors of 16
// elements; elements are converted to fp32, and the result is rounded once. The loop is memory-bound.
#pragma once

#include <cstdint>

#include "cpu/simd.h"

namespace mh::kernels {

// Sizes of a call, and strides in elements.
struct RotationParams {
  int64_t positions = 0, heads = 0;
  int64_t head_size = 0;  // elements of a head
  int64_t size = 0;       // even number of elements that rotate, at most head_size
  bool is_inverse = false;
  int64_t x_position_stride = 0, x_head_stride = 0;
  int64_t y_position_stride = 0, y_head_stride = 0;
};

// rotate(), compiled for one instruction set (cpu/simd.h).
template <SimdLevel, class T>
struct RotationLoops {
  static void apply(const RotationParams& params, const float* cosines, const float* sines, const T* x, T* y);
};

// Writes to y (positions, heads, head_size) the rotated heads of x, for the cosines and sines (positions, size / 2) of
// the angles, contiguous. x and y may be the same memory with the same strides. T: float, or uint16_t for bf16.
template <class T>
void rotate(const RotationParams& params, const float* cosines, const float* sines, const T* x, T* y) {
  dispatch_simd_level([&](auto simd_level) { RotationLoops<simd_level, T>::apply(params, cosines, sines, x, y); });
}

}  // namespace mh::kernels
