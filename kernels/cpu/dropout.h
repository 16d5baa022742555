// Dropout of a range of a tensor on a CPU, with the random stream of dropout_params.h.
//
// Tiling: a call computes groups of 64 elements of the random stream. A group takes the four random words of each of 16
// Philox counters: each lane of a vector computes one counter, and four vectors hold the state of all 16. A mask of 256
// bytes, on the stack, holds the factors of a group. Elements are multiplied by the factors in vectors of 16, and
// the last elements of an incomplete group one by one. x is read once, and y written once. A hidden state (512, 1024)
// has 8192 groups.
#pragma once

#include <cmath>

#include "cpu/simd.h"
#include "dropout_params.h"

namespace mh::kernels {

// Returns the parameters of dropout with drop probability p at one site of the model in one update of the training.
// key: Philox key of the random stream.
inline DropoutParams make_dropout(const uint32_t key[2], uint32_t update, uint32_t site, double p) {
  return {
      {key[0], key[1]}, update, site, static_cast<uint32_t>(std::ceil(p * 0x1p24)), static_cast<float>(1 / (1 - p))};
}

// dropout(), compiled for one instruction set (cpu/simd.h).
template <SimdLevel, class T>
struct DropoutLoops {
  static void apply(const DropoutParams& params, uint64_t stream_offset, const T* x, T* y, int64_t count);
};

// For i < count, computes y[i] = x[i] * params.scale, or y[i] = 0 if element stream_offset + i of the random stream is
// dropped. x and y may be the same memory. T: float, or uint16_t for bf16.
template <class T>
void dropout(const DropoutParams& params, uint64_t stream_offset, const T* x, T* y, int64_t count) {
  dispatch_simd_level([&](auto simd_level) { DropoutLoops<simd_level, T>::apply(params, stream_offset, x, y, count); });
}

}  // namespace mh::kernels
