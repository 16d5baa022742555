// Eigenvalues of symmetric matrices, without vectors, in double precision: Householder's reduction to a tridiagonal
// matrix, then the QL method without square roots (Parlett, "The Symmetric Eigenvalue Problem", chapters 7 and 8).
//
// The error of an eigenvalue is a few units in the last place of the largest one, so small ones may have no correct
// digits.
#pragma once

#include <cstdint>

#include "cpu/simd.h"

namespace mh::kernels {

// Row stride of the layout below: rows are padded to whole vectors, and their stride is no power of two, which would
// evict them from the cache.
inline int64_t eigenvalue_stride(int64_t n) { return (n + 7) / 8 * 8 + 8; }
// Return the rows of the layout, and the scratch memory in elements.
inline int64_t eigenvalue_rows(int64_t n) { return (n + 7) / 8 * 8; }
inline int64_t eigenvalue_scratch(int64_t n) { return 5 * eigenvalue_stride(n); }

template <Level>
struct EigenvalueLoops {
  static bool symmetric(double* a, int64_t n, double* values, double* scratch);
};

// Computes the eigenvalues, values (n), in no order. a: eigenvalue_rows(n) rows with stride eigenvalue_stride(n); of
// row i elements 0 … i are read; all is overwritten. Returns false if the iteration does not converge, as with elements
// that are not finite.
inline bool symmetric_eigenvalues(double* a, int64_t n, double* values, double* scratch) {
  return at_level([&](auto at) { return EigenvalueLoops<at>::symmetric(a, n, values, scratch); });
}

}  // namespace mh::kernels
