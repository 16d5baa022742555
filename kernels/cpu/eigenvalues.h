// Eigenvalues, without eigenvectors, of symmetric matrices in double precision: Householder reduction to a tridiagonal
// matrix, then the QL method without square roots (Parlett, "The Symmetric Eigenvalue Problem", chapters 7 and 8).
//
// The absolute error of each eigenvalue is a few units in the last place of the eigenvalue of largest magnitude, so an
// eigenvalue of much smaller magnitude may have no correct digit.
//
// Tiling: a call computes one matrix. Each of n - 1 steps of the reduction reads and writes the lower triangle of the
// remaining rows once. The inner loop has 4 rows and 8 columns, with 4 vectors of partial sums and 5 operand vectors,
// each of 8 fp64 numbers. The matrix takes 8 * eigenvalue_rows(n) * eigenvalue_stride(n) bytes, of which the steps use
// the lower half; the scratch memory takes 8 * eigenvalue_scratch_doubles(n) bytes. For n = 512 these are 2080 KiB and
// 20 KiB, for n = 64 they are 36 KiB and 2.8 KiB. The vectors of the scratch memory stay in the L1 cache, and the lower
// half of the matrix in the L2 cache if it fits.
#pragma once

#include <cstdint>

#include "ceil_div.h"
#include "cpu/simd.h"

namespace mh::kernels {

// Returns the row stride, in elements, of the matrix argument of symmetric_eigenvalues(). Rows are padded to whole
// vectors of 8, and one more vector keeps the stride off a power of two for the common sizes n = 64, 128, 256 and 512;
// with a stride of a power of two, rows evict each other from the cache.
inline int64_t eigenvalue_stride(int64_t n) { return round_up(n, 8) + 8; }
// Return the number of rows of the matrix argument, and the number of elements of the scratch memory, of
// symmetric_eigenvalues().
inline int64_t eigenvalue_rows(int64_t n) { return round_up(n, 8); }
inline int64_t eigenvalue_scratch_doubles(int64_t n) { return 5 * eigenvalue_stride(n); }

// symmetric_eigenvalues(), compiled for one instruction set (cpu/simd.h).
template <SimdLevel>
struct EigenvalueLoops {
  static bool eigenvalues(double* a, int64_t n, double* values, double* scratch);
};

// Computes `values` (n), the eigenvalues of a symmetric matrix, in no particular order. a: the matrix, of which only
// the lower triangle is read; overwritten. Its memory has eigenvalue_rows(n) rows with row stride eigenvalue_stride(n).
// Returns false if the iteration does not converge, or an element is not finite.
inline bool symmetric_eigenvalues(double* a, int64_t n, double* values, double* scratch) {
  return dispatch_simd_level(
      [&](auto simd_level) { return EigenvalueLoops<simd_level>::eigenvalues(a, n, values, scratch); });
}

}  // namespace mh::kernels
