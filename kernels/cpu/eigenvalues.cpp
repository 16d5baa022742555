// Computes eigenvalues of symmetric matrices, and instantiates EigenvalueLoops for one instruction set.
#include "cpu/eigenvalues.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "cpu/registers.h"

namespace mh::kernels {

namespace {

constexpr int64_t tile_size = 8;  // number of rows and of columns of a tile; each row is a vector
using Doubles = Vector<double, tile_size>;

MH_INLINE void load(const double* from, Doubles& to) { load_vector(from, to); }
MH_INLINE void store(const Doubles& from, double* to) { store_vector(from, to); }
MH_INLINE double sum_of(const Doubles& v) {
  double x[tile_size];
  store(v, x);
  return ((x[0] + x[4]) + (x[1] + x[5])) + ((x[2] + x[6]) + (x[3] + x[7]));
}

// Computes A -= u wᵀ + w uᵀ, and then y = A x, for the first `rows` rows and columns of the symmetric matrix A, in one
// pass over its lower triangle. This pass dominates the time. The caller sets u, w and x to zero from element `rows` to
// the end of its tile, so that elements of A outside the first `rows` rows and columns have no effect.
void update_and_multiply(double* a, int64_t stride, int64_t rows, const double* u, const double* w, const double* x,
                         double* y) {
  const int64_t tiles = ceil_div(rows, tile_size);
  std::memset(y, 0, static_cast<size_t>(tiles * tile_size) * sizeof *y);
  // Number of rows updated at a time: as many as fit in the registers of AVX-512 together with their shared operands.
  constexpr int64_t group_size = 4;
  for (int64_t first = 0; first < tiles * tile_size; first += group_size) {
    const int64_t diagonal = first / tile_size * tile_size;
    double* row = a + first * stride;
    Doubles sums[group_size];
    for (auto& s : sums) s = Doubles{};
    Doubles v, uc, wc, xc, yc;
    for (int64_t c = 0; c < diagonal; c += tile_size) {
      load(u + c, uc), load(w + c, wc), load(x + c, xc), load(y + c, yc);
      for (int64_t r = 0; r < group_size; ++r) {
        load(row + r * stride + c, v);
        v -= u[first + r] * wc;
        v -= w[first + r] * uc;
        store(v, row + r * stride + c);
        sums[r] += v * xc;
        yc += x[first + r] * v;
      }
      store(yc, y + c);
    }
    // A diagonal tile is stored with both triangles, so the transpose of its rows is not added to y.
    load(u + diagonal, uc), load(w + diagonal, wc), load(x + diagonal, xc);
    for (int64_t r = 0; r < group_size; ++r) {
      load(row + r * stride + diagonal, v);
      v -= u[first + r] * wc;
      v -= w[first + r] * uc;
      store(v, row + r * stride + diagonal);
      sums[r] += v * xc;
    }
    for (int64_t r = 0; r < group_size; ++r) y[first + r] += sum_of(sums[r]);
  }
}

// Computes the Householder reflection 1 - β v vᵀ that maps the vector x (count) to (0, …, 0, e). Replaces x by v,
// writes β to `beta`, and returns e. If x has this form already, β is 0, and x is not replaced.
double householder_reflection(double* x, int64_t count, double& beta) {
  double max_magnitude = 0;
  for (int64_t i = 0; i < count; ++i) max_magnitude = std::max(max_magnitude, std::abs(x[i]));
  double square_sum = 0;  // sum of the squares of all elements but the last, divided by max_magnitude²
  for (int64_t i = 0; i + 1 < count; ++i) square_sum += (x[i] / max_magnitude) * (x[i] / max_magnitude);
  const double last_element = x[count - 1];
  if (max_magnitude == 0 || square_sum == 0) {
    beta = 0;
    return last_element;
  }
  const double norm = max_magnitude *
                      std::sqrt(square_sum + (last_element / max_magnitude) * (last_element / max_magnitude)),
               e = last_element > 0 ? -norm : norm;
  // v is x with e subtracted from the last element, scaled so that the last element is 1. The sign of e avoids
  // cancellation, and the scale makes β simple.
  const double pivot = last_element - e;
  for (int64_t i = 0; i + 1 < count; ++i) x[i] /= pivot;
  x[count - 1] = 1;
  beta = -pivot / e;
  return e;
}

// Reduces the symmetric matrix a (n, n) to a tridiagonal matrix with the same eigenvalues: d (n), its diagonal, and e
// (n), its off-diagonal, where e[i] is element (i - 1, i) and e[0] = 0. Overwrites a.
void reduce_to_tridiagonal(double* a, int64_t n, double* d, double* e, double* scratch) {
  const int64_t stride = eigenvalue_stride(n);
  double *u = scratch, *w = scratch + stride, *x = scratch + 2 * stride;
  const auto zero_from = [&](double* v, int64_t begin) {
    std::memset(v + begin, 0, static_cast<size_t>(stride - begin) * sizeof *v);
  };
  zero_from(u, 0), zero_from(w, 0);
  for (int64_t i = n - 1; i > 0; --i) {
    // Applies the previous reflection to row i; update_and_multiply() below applies it to the other rows.
    double* row = a + i * stride;
    for (int64_t c = 0; c <= i; ++c) row[c] = row[c] - u[i] * w[c] - w[i] * u[c];
    d[i] = row[i];
    std::memcpy(x, row, static_cast<size_t>(i) * sizeof *x);
    double beta = 0;
    e[i] = householder_reflection(x, i, beta);
    if (beta == 0) zero_from(x, 0);
    zero_from(x, i), zero_from(u, i), zero_from(w, i);
    double* y = scratch + 3 * stride;
    update_and_multiply(a, stride, i, u, w, x, y);
    // The next A is (1 - β x xᵀ) A (1 - β x xᵀ) = A - x wᵀ - w xᵀ with w = β A x - (β²/2) (xᵀ A x) x.
    double inner_product = 0;
    for (int64_t c = 0; c < i; ++c) inner_product += x[c] * y[c];
    for (int64_t c = 0; c < i; ++c) w[c] = beta * y[c] - beta * beta / 2 * inner_product * x[c];
    std::swap(u, x);
  }
  d[0] = a[0] - 2 * u[0] * w[0];
  e[0] = 0;
}

// Replaces the diagonal d (n) of a symmetric tridiagonal matrix by its eigenvalues, by the QL method. e (n): the
// off-diagonal, where e[i] is element (i, i + 1); overwritten. Returns false if an element is not finite or the
// iteration does not converge.
bool tridiagonal_eigenvalues(double* d, double* e, int64_t n) {
  double norm = 0, sum = 0;  // `sum` detects NaN, which the maximum `norm` would skip
  for (int64_t i = 0; i < n; ++i) {
    const double row_magnitude = std::abs(d[i]) + std::abs(e[i]);
    norm = std::max(norm, row_magnitude), sum += row_magnitude;
  }
  if (!std::isfinite(sum)) return false;
  // An off-diagonal element of at most 2^-54 of the norm changes the eigenvalues by less than rounding.
  const double tolerance = std::ldexp(norm, -54), squared_tolerance = tolerance * tolerance;
  for (int64_t i = 0; i < n; ++i) e[i] *= e[i];  // the QL steps below use only the squares of the off-diagonal
  for (int64_t low = 0; low < n; ++low) {
    for (int iterations = 0;; ++iterations) {
      int64_t high = low;
      while (high + 1 < n && e[high] > squared_tolerance) ++high;
      if (high == low) break;
      if (iterations == 60) return false;
      // Wilkinson's shift: the eigenvalue of the leading 2 × 2 submatrix that is nearer to d[low].
      const double root = std::sqrt(e[low]), ratio = (d[low + 1] - d[low]) / (2 * root);
      const double shift = d[low] - root / (ratio + std::copysign(std::hypot(ratio, 1.0), ratio));
      // One QL step, from the last row to the first, on the squares of the off-diagonal (Parlett, section 8-15).
      double c = 1, s = 0, gamma = d[high] - shift, p = gamma * gamma;
      for (int64_t i = high - 1; i >= low; --i) {
        const double off_diagonal = e[i], r = p + off_diagonal, previous_gamma = gamma, previous_c = c;
        if (i + 1 < high) e[i + 1] = s * r;
        const double inverse_c = r / p;  // 1 / c, divided in parallel with c to shorten the dependency chain
        c = p / r, s = off_diagonal / r;
        const double diagonal_element = d[i];
        gamma = c * (diagonal_element - shift) - s * previous_gamma;
        d[i + 1] = previous_gamma + (diagonal_element - gamma);
        p = inverse_c < 1e290 ? gamma * gamma * inverse_c : previous_c * off_diagonal;  // if c is 0, 1 / c overflows
      }
      e[low] = s * p;
      d[low] = shift + gamma;
    }
  }
  return true;
}

}  // namespace

template <SimdLevel L>
bool EigenvalueLoops<L>::eigenvalues(double* a, int64_t n, double* values, double* scratch) {
  if (n == 0) return true;
  const int64_t stride = eigenvalue_stride(n);
  // Copies the lower triangle of each diagonal tile to its upper triangle, and sets the padding to zero.
  for (int64_t i = 0; i < eigenvalue_rows(n); ++i)
    for (int64_t c = i / tile_size * tile_size; c < i / tile_size * tile_size + tile_size; ++c) {
      if (i >= n || c >= n) a[i * stride + c] = 0;
      else if (c > i) a[i * stride + c] = a[c * stride + i];
    }
  for (int64_t i = n; i < eigenvalue_rows(n); ++i)
    std::memset(a + i * stride, 0, static_cast<size_t>(stride) * sizeof *a);
  double* e = scratch + 4 * stride;
  reduce_to_tridiagonal(a, n, values, e, scratch);
  for (int64_t i = 0; i + 1 < n; ++i) e[i] = e[i + 1];
  e[n - 1] = 0;
  return tridiagonal_eigenvalues(values, e, n);
}

template struct EigenvalueLoops<kSimdLevel>;

}  // namespace mh::kernels
