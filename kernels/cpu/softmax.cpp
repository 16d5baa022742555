// Computes softmax and sigsoftmax of a row and their gradients, and instantiates SoftmaxLoops for one instruction set.
#include "cpu/softmax.h"

#include <cmath>

#include "cpu/vector.h"

namespace mh::kernels {

namespace {

constexpr float infinity = __builtin_inff();

using Bytes = Vector<uint8_t, lanes>;

// Loads the first `count` numbers from `from`, at most 16; the other lanes become `padding`.
MH_INLINE void load_padded(const float* from, int64_t count, float padding, Floats& to) {
  if (count >= lanes) return load(from, to);
  load_partial(from, count, to);
  replace_tail(count, padding, to);
}
// Sets to -inf the lanes of x that are not allowed, and all lanes from lane `count` on.
MH_INLINE void mask_lanes(const bool* is_allowed, int64_t count, Floats& x) {
  uint8_t bytes[lanes] = {};
  std::memcpy(bytes, is_allowed, static_cast<size_t>(count < lanes ? count : lanes));
  Bytes b;
  load_vector(bytes, b);
  Ints allowed_lanes;
  convert(b, allowed_lanes);
  Floats neg_infinity;
  fill(neg_infinity, -infinity);
  x = select(allowed_lanes != 0, x, neg_infinity);
}

// Returns the index after the last entry of x (n) that is not zero; 0 if all are zero.
template <class T>
MH_INLINE int64_t nonzero_end(const T* x, int64_t n) {
  for (; n >= lanes; n -= lanes) {
    T zeros[lanes] = {};
    if (std::memcmp(x + n - lanes, zeros, sizeof zeros) != 0) break;
  }
  while (n > 0 && x[n - 1] == T{}) --n;
  return n;
}

// Splits the exponential of Sigsoftmax, exp(a) σ(a) = exp(exponent) / (1 + e), into `exponent`, which is a if a >= 0
// and 2a otherwise, and e = exp(-|a|). `exponent` exceeds ln(exp(a) σ(a)) by at most ln 2.
MH_INLINE void sigmoid_parts(const Floats& a, Floats& exponent, Floats& e) {
  exponent = select(a >= 0, a, a + a);
  e = select(a >= 0, -a, a);
  exp_or_zero(e);
}

// Computes softmax_row() of `length` entries.
template <SoftmaxKind kind>
MH_INLINE void forward_row(const float* a, const bool* is_allowed, float* p, int64_t length) {
  int64_t n = length;
  if (is_allowed != nullptr) n = nonzero_end(is_allowed, n);  // entries after the last allowed one are not read
  Floats max_lanes;
  fill(max_lanes, -infinity);
  for (int64_t s = 0; s < n; s += lanes) {
    Floats x;
    load_padded(a + s, n - s, -infinity, x);
    if (is_allowed != nullptr) mask_lanes(is_allowed + s, n - s, x);
    if constexpr (kind == SoftmaxKind::sigsoftmax) x = select(x >= 0, x, x + x);
    max_lanes = select(x > max_lanes, x, max_lanes);
  }
  const float row_max = max_of(max_lanes);
  Floats sums{};
  if (row_max > -infinity) {
    for (int64_t s = 0; s < n; s += lanes) {
      Floats x, e;
      load_padded(a + s, n - s, -infinity, x);
      if (is_allowed != nullptr) mask_lanes(is_allowed + s, n - s, x);
      if constexpr (kind == SoftmaxKind::sigsoftmax) {
        Floats exponent;
        sigmoid_parts(x, exponent, e);
        x = exponent - row_max;
        exp_or_zero(x);
        x = x / (1.0F + e);
      } else {
        x = x - row_max;
        exp_or_zero(x);
      }
      sums += x;
      store_partial(x, n - s, p + s);
    }
    const float scale = 1 / sum_of(sums);
    for (int64_t s = 0; s < n; s += lanes) {
      Floats x;
      load_padded(p + s, n - s, 0, x);
      x = x * scale;
      store_partial(x, n - s, p + s);
    }
  } else {
    // No allowed entry is above -inf: probabilities are 0. An allowed NaN, which the maximum skips, is propagated.
    for (int64_t s = 0; s < n; ++s) p[s] = a[s] != a[s] && (is_allowed == nullptr || is_allowed[s]) ? a[s] : 0.0F;
  }
  for (int64_t s = n; s < length; ++s) p[s] = 0;
}

// Computes softmax_row_backward() of `length` entries.
template <SoftmaxKind kind>
MH_INLINE void backward_row(const float* a, const float* p, const float* dp, float* da, int64_t length) {
  const int64_t n = nonzero_end(p, length);
  Floats sums{};
  for (int64_t s = 0; s < n; s += lanes) {
    Floats x, g;
    load_padded(p + s, n - s, 0, x);
    load_padded(dp + s, n - s, 0, g);
    sums += x * g;
  }
  const float inner_product = sum_of(sums);
  for (int64_t s = 0; s < n; s += lanes) {
    Floats x, g;
    load_padded(p + s, n - s, 0, x);
    load_padded(dp + s, n - s, 0, g);
    g = x * (g - inner_product);
    if constexpr (kind == SoftmaxKind::sigsoftmax) {
      // d ln(exp(a) σ(a))/da = d(2a - softplus(a))/da = 1 + σ(-a)
      Floats l, e, exponent, ones;
      load_padded(a + s, n - s, 0, l);
      sigmoid_parts(l, exponent, e);
      fill(ones, 1);
      g = g * (1.0F + select(l >= 0, e, ones) / (1.0F + e));
    }
    store_partial(g, n - s, da + s);
  }
  for (int64_t s = n; s < length; ++s) da[s] = 0;
}

}  // namespace

template <SimdLevel L>
void SoftmaxLoops<L>::forward(SoftmaxKind kind, const float* a, const bool* is_allowed, float* p, int64_t n) {
  if (kind == SoftmaxKind::softmax) forward_row<SoftmaxKind::softmax>(a, is_allowed, p, n);
  else forward_row<SoftmaxKind::sigsoftmax>(a, is_allowed, p, n);
}

template <SimdLevel L>
void SoftmaxLoops<L>::backward(SoftmaxKind kind, const float* a, const float* p, const float* dp, float* da,
                               int64_t n) {
  if (kind == SoftmaxKind::softmax) backward_row<SoftmaxKind::softmax>(nullptr, p, dp, da, n);
  else backward_row<SoftmaxKind::sigsoftmax>(a, p, dp, da, n);
}

template struct SoftmaxLoops<kSimdLevel>;

}  // namespace mh::kernels
