// RMS norm (Zhang & Sennrich 2019) and its gradients on a CPU, for a range of rows:
//   y = weight * x * rstd,   rstd = 1 / sqrt(mean(x²) + epsilon)
//
// Tiling: a call computes rows one after another, in vectors of 16 elements, with one vector of partial sums in
// registers. Both passes read a row twice; the row stays in the L1 cache. Sums and products are in fp32.
#pragma once

#include <cstdint>

#include "cpu/simd.h"

namespace mh::kernels {

struct RmsNormParams {
  int64_t size = 0;               // number of elements of a row
  const float* weight = nullptr;  // (size)
  float epsilon = 0;
};

// rms_norm() and rms_norm_backward(), compiled for one instruction set (cpu/simd.h). T: type of x, y, dx and dy: float,
// or uint16_t for bf16.
template <SimdLevel, class T>
struct RmsNormLoops {
  static void forward(const RmsNormParams& params, const T* x, T* y, float* rstd, int64_t rows);
  static void backward(const RmsNormParams& params, const T* x, const float* rstd, const T* dy, T* dx, float* dweight,
                       int64_t rows);
};

// Computes y (rows, size) and rstd (rows) of x (rows, size). Null `rstd`: not stored.
template <class T>
void rms_norm(const RmsNormParams& params, const T* x, T* y, float* rstd, int64_t rows) {
  dispatch_simd_level([&](auto simd_level) { RmsNormLoops<simd_level, T>::forward(params, x, y, rstd, rows); });
}

// Computes dx (rows, size) from x (rows, size), rstd (rows) and dy (rows, size), and adds the gradient of the weight
// from these rows to `dweight` (size).
template <class T>
void rms_norm_backward(const RmsNormParams& params, const T* x, const float* rstd, const T* dy, T* dx, float* dweight,
                       int64_t rows) {
  dispatch_simd_level(
      [&](auto simd_level) { RmsNormLoops<simd_level, T>::backward(params, x, rstd, dy, dx, dweight, rows); });
}

}  // namespace mh::kernels
