// Optimiser updates (optimizer_rules.h) on a CPU, in one pass over the elements [begin, end) of arrays of equal length.
//
// Tiling: an update is one loop over the elements of a range, without scratch memory. For each element Adam reads 16
// bytes and writes 12, and the other rules read 12 and write 8: Adam moves 28 MiB for a matrix (1024, 1024). No element
// is read twice, so the sizes of the caches do not matter. Registers hold p, g, m and v of one element of Adam, or p, g
// and the momentum buffer of one vector of the other rules; the compiler does not vectorise Adam, since std::sqrt may
// set errno. A sum of squares holds 16 partial sums in fp64 in registers.
#pragma once

#include "cpu/simd.h"
#include "optimizer_rules.h"

namespace mh::kernels {

// The functions below, compiled for one instruction set (cpu/simd.h).
template <SimdLevel>
struct OptimizerLoops {
  static void adam(const AdamParams& params, int64_t begin, int64_t end, float* p, const float* g, float* m, float* v);
  static void sgd(const MomentumParams& params, int64_t begin, int64_t end, float* p, const float* g, float* buffer);
  static void nag(const NagParams& params, int64_t begin, int64_t end, float* p, const float* g, float* buffer);
  static double sum_of_squares(const float* x, int64_t begin, int64_t end);
};

// Update the parameters p, and the moments m and v or the momentum `buffer`, from the gradients g.
inline void adam(const AdamParams& params, int64_t begin, int64_t end, float* p, const float* g, float* m, float* v) {
  dispatch_simd_level([&](auto simd_level) { OptimizerLoops<simd_level>::adam(params, begin, end, p, g, m, v); });
}
inline void sgd(const MomentumParams& params, int64_t begin, int64_t end, float* p, const float* g, float* buffer) {
  dispatch_simd_level([&](auto simd_level) { OptimizerLoops<simd_level>::sgd(params, begin, end, p, g, buffer); });
}
inline void nag(const NagParams& params, int64_t begin, int64_t end, float* p, const float* g, float* buffer) {
  dispatch_simd_level([&](auto simd_level) { OptimizerLoops<simd_level>::nag(params, begin, end, p, g, buffer); });
}

// Returns the sum of the squares of the elements [begin, end) of x, in fp64.
inline double sum_of_squares(const float* x, int64_t begin, int64_t end) {
  return dispatch_simd_level(
      [&](auto simd_level) { return OptimizerLoops<simd_level>::sum_of_squares(x, begin, end); });
}

}  // namespace mh::kernels
