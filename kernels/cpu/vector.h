// Vectors of 16 lanes, in as many registers as the instruction set needs (cpu/registers.h), so the same source serves
// AVX-512, AVX2 and the baseline. Sources that are compiled without fused multiply-add (kernels/meson.build) give the
// same bits with all instruction sets.
#pragma once

#include <cstdint>
#include <cstring>

#include "cpu/registers.h"

namespace mh::kernels {

constexpr int lanes = 16;
using Floats = Vector<float, lanes>;
using Ints = Vector<int32_t, lanes>;
using Words = Vector<uint32_t, lanes>;
using HalfWords = Vector<uint16_t, lanes>;

// Load and store 16 elements. Declared MH_INLINE, since each SIMD level (cpu/simd.h) needs a copy for its instruction
// set.
MH_INLINE void load(const float* from, Floats& to) { load_vector(from, to); }
MH_INLINE void store(const Floats& from, float* to) { store_vector(from, to); }

// A bf16 number is the upper half of an fp32 number.
MH_INLINE void load(const uint16_t* from, Floats& to) {
  HalfWords h;
  load_vector(from, h);
  Words w;
  convert(h, w);
  w = w << 16;
  copy_bits(w, to);
}
// Rounds fp32 to bf16, to nearest, ties to even; the result is in the lower half of each word. Every NaN becomes the
// same quiet NaN, since the carry of the rounding could turn a NaN whose payload is all ones, as GPUs return, into -0.
constexpr uint32_t kInfinityBits = 0x7F800000, kBf16Nan = 0x7FC0;
MH_INLINE void to_bf16(const Floats& from, Words& to) {
  copy_bits(from, to);
  const Ints lanes_of_nan = (to & 0x7FFFFFFF) > kInfinityBits;  // all bits are 1 in lanes that are NaN, otherwise 0
  Words is_nan;
  copy_bits(lanes_of_nan, is_nan);
  to = (to + 0x7FFF + ((to >> 16) & 1)) >> 16;
  to = (to & ~is_nan) | (kBf16Nan & is_nan);
}
MH_INLINE void store(const Floats& from, uint16_t* to) {
  Words w;
  to_bf16(from, w);
  HalfWords h;
  convert(w, h);
  store_vector(h, to);
}

MH_INLINE float to_float(float x) { return x; }
MH_INLINE float to_float(uint16_t x) {
  uint32_t w = uint32_t{x} << 16;
  float f;
  std::memcpy(&f, &w, sizeof f);
  return f;
}
MH_INLINE void from_float(float x, float& to) { to = x; }
MH_INLINE void from_float(float x, uint16_t& to) {
  uint32_t w;
  std::memcpy(&w, &x, sizeof w);
  to = static_cast<uint16_t>((w & 0x7FFFFFFF) > kInfinityBits ? kBf16Nan : (w + 0x7FFF + ((w >> 16) & 1)) >> 16);
}

// Load and store the first `count` lanes: all if count >= 16, none if count <= 0. load_partial() sets the other lanes
// to 0; store_partial() does not write them.
template <class T>
MH_INLINE void load_partial(const T* from, int64_t count, Floats& to) {
  if (count >= lanes) return load(from, to);
  T elements[lanes] = {};
  for (int64_t i = 0; i < count; ++i) elements[i] = from[i];
  load(elements, to);
}
template <class T>
MH_INLINE void store_partial(const Floats& from, int64_t count, T* to) {
  if (count >= lanes) return store(from, to);
  T elements[lanes];
  store(from, elements);
  for (int64_t i = 0; i < count; ++i) to[i] = elements[i];
}

// Sets all lanes of v to x.
MH_INLINE void fill(Floats& v, float x) { v = x - Floats{}; }

// Sets each lane to its number.
MH_INLINE void set_lane_numbers(Ints& v) {
  const int32_t numbers[lanes] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  load_vector(numbers, v);
}

// Sets lanes `count` … 15 of v to `padding`.
MH_INLINE void replace_tail(int64_t count, float padding, Floats& v) {
  if (count >= lanes) return;
  Ints lane;
  set_lane_numbers(lane);
  Floats padding_lanes;
  fill(padding_lanes, padding);
  v = select(lane < static_cast<int32_t>(count), v, padding_lanes);
}

struct Sum {
  template <class T>
  MH_INLINE T operator()(const T& a, const T& b) const {
    return a + b;
  }
};
struct Maximum {
  template <class T>
  MH_INLINE T operator()(const T& a, const T& b) const {
    return select(a > b, a, b);
  }
};
MH_INLINE float sum_of(const Floats& v) { return reduce(v, Sum()); }
MH_INLINE float max_of(const Floats& v) { return reduce(v, Maximum()); }

// Transposes a matrix (16, 16) in four stages, each of which interleaves row i with row i + 8.
MH_INLINE void transpose(Floats (&rows)[lanes]) {
  for (int stage = 0; stage < 4; ++stage) {
    Floats interleaved[lanes];
    for (int i = 0; i < lanes / 2; ++i) {
      interleaved[2 * i] = interleave_low(rows[i], rows[i + lanes / 2]);
      interleaved[2 * i + 1] = interleave_high(rows[i], rows[i + lanes / 2]);
    }
    for (int i = 0; i < lanes; ++i) rows[i] = interleaved[i];
  }
}

// Replaces x by e^x, for x <= 0, with an error of at most 2 units in the last place. Below -87, also for -inf, the
// result is e^-87, about 1.6e-38. NaN stays NaN.
MH_INLINE void exp_nonpositive(Floats& x) {
  Floats min_input;
  fill(min_input, -87.0F);
  Floats clamped_x = select(x < min_input, min_input, x);  // the comparison is false for NaN, which stays NaN
  constexpr float magic = 0x1.8p23F;                       // the lowest bits of x + magic are x, rounded to an integer
  Floats shifted_x = clamped_x * 1.44269504F + magic;
  Floats n = shifted_x - magic;
  // r = clamped_x - n ln 2, with ln 2 as the sum of two constants. The first has so few bits that its product with n is
  // exact.
  Floats r = clamped_x - n * 0.693359375F;
  r = r - n * -2.12194440e-4F;
  Floats p = r * 1.9875691500e-4F + 1.3981999507e-3F;  // minimax polynomial of Cephes' expf
  p = p * r + 8.3334519073e-3F;
  p = p * r + 4.1665795894e-2F;
  p = p * r + 1.6666665459e-1F;
  p = p * r + 5.0000001201e-1F;
  p = p * (r * r) + r + 1.0F;
  Words bits, exponent;
  copy_bits(p, bits);
  copy_bits(shifted_x, exponent);
  bits += exponent << 23;
  Floats result;
  copy_bits(bits, result);
  Floats nan = x * 0.0F;  // 0, or NaN if x is infinite or NaN
  x = select(x != x, nan, result);
}

// Replaces x by tanh(x), with an error of at most 2 units in the last place, and sets `slope` to the derivative 1 -
// tanh(x)², with a relative error of at most 3 units in the last place, also where tanh(x) rounds to 1. Infinities
// become 1 or -1; NaN stays NaN.
MH_INLINE void tanh_with_slope(Floats& x, Floats& slope) {
  Floats e = select(x < 0.0F, x + x, -(x + x));  // -2|x|
  exp_nonpositive(e);                            // tanh|x| = (1 - e) / (1 + e) loses its relative accuracy near 0
  const Floats sum = e + 1.0F, magnitude = 1.0F - 2.0F * e / sum;
  slope = 4.0F * e / (sum * sum);
  const Floats x2 = x * x;
  Floats p = x2 * -5.70498872745e-3F + 2.06390887954e-2F;  // minimax polynomial of Cephes' tanhf for |x| < 0.625
  p = p * x2 - 5.37397155531e-2F;
  p = p * x2 + 1.33314422036e-1F;
  p = p * x2 - 3.33332819422e-1F;
  p = p * x2 * x + x;
  const Floats large_result = select(x < 0.0F, -magnitude, magnitude);
  x = select(x2 < 0.390625F, p, large_result);
}

// Replaces x by e^x, for x <= 0; by exactly 0 below -87.
MH_INLINE void exp_or_zero(Floats& x) {
  const Ints underflow = x < -87.0F;
  exp_nonpositive(x);
  x = select(underflow, Floats{}, x);
}

}  // namespace mh::kernels
