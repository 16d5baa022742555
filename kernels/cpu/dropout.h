// Dropout on the CPU.
#pragma once

#include <cmath>

#include "cpu/simd.h"
#include "dropout_plan.h"

namespace mh::kernels {

inline Dropout make_dropout(const uint32_t key[2], uint32_t update, uint32_t site, double p) {
  return {
      {key[0], key[1]}, update, site, static_cast<uint32_t>(std::ceil(p * 0x1p24)), static_cast<float>(1 / (1 - p))};
}

// T: float, or uint16_t for bf16.
template <Level, class T>
struct DropoutLoops {
  static void apply(const Dropout& params, uint64_t first, const T* x, T* y, int64_t count);
};

// Computes y[i] = kept(first + i) ? x[i] * scale : 0 for i < count. x and y may be the same.
template <class T>
void dropout(const Dropout& params, uint64_t first, const T* x, T* y, int64_t count) {
  at_level([&](auto at) { DropoutLoops<at, T>::apply(params, first, x, y, count); });
}

}  // namespace mh::kernels
