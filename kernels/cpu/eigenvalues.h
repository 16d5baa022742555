// Eigenvalues of symmetric matrices, values only, in double precision: Householder's reduction to a tridiagonal matrix,
// then the QL method without roots (Parlett, "The Symmetric Eigenvalue Problem", chapters 7 and 8).
//
// An eigenvalue is off by a few units in the last place of the largest: small ones have no digits of their own.
#pragma once

#include <cstdint>

#include "cpu/simd.h"

namespace mh::kernels {

// Numbers between one row and the next in the layout below: rows are filled up to whole vectors, and no power of two
// apart, which would push them out of the cache.
inline int64_t eigenvalue_stride(int64_t n) { return (n + 7) / 8 * 8 + 8; }
// Rows of the layout, and numbers of scratch.
inline int64_t eigenvalue_rows(int64_t n) { return (n + 7) / 8 * 8; }
inline int64_t eigenvalue_scratch(int64_t n) { return 5 * eigenvalue_stride(n); }

template <Level>
struct EigenvalueLoops {
  static bool symmetric(double* a, int64_t n, double* values, double* scratch);
};

// a: eigenvalue_rows(n) rows, eigenvalue_stride(n) apart. Of row i the numbers 0 … i are read; all is overwritten.
// values (n), in no order. False where the method does not settle, as with numbers that are not finite.
inline bool symmetric_eigenvalues(double* a, int64_t n, double* values, double* scratch) {
  return at_level([&](auto at) { return EigenvalueLoops<at>::symmetric(a, n, values, scratch); });
}

}  // namespace mh::kernels
