// Computes gated activations and their gradients, and instantiates GatedActivationLoops for one instruction set, for
// fp32 and bf16.
#include "cpu/gated_activation.h"

#include "cpu/vector.h"

namespace mh::kernels {

namespace {

// Computes σ(v) and its derivative, σ(v) σ(-v), from exp(-|v|).
MH_INLINE void sigmoid(const Floats& v, Floats& value, Floats& slope) {
  Floats e = select(v < 0.0F, v, -v);
  exp_or_zero(e);
  const Floats inverse = 1.0F / (1.0F + e);
  value = select(v < 0.0F, e * inverse, inverse);
  slope = e * inverse * inverse;
}

// Computes the normal distribution Φ(-|x|) and the density φ(x), with a relative error of a few units in the last place
// where |x| is below 1:
//   φ(x) = exp(-x²/2) / √(2π),   Φ(-|x|) = exp(-x²/2) t p(t),   t = 1 / (1 + 0.34 |x|)
// p is the polynomial of degree 8 with the smallest relative error in 0 <= |x| <= 13.3, 2.5e-8. For larger |x| both
// results are 0.
MH_INLINE void normal_distribution(const Floats& x, Floats& tail, Floats& density) {
  const Floats magnitude = select(x < 0.0F, -x, x);
  Floats e = x * x * -0.5F;
  exp_or_zero(e);
  const Floats t = 1.0F / (1.0F + 0.34F * magnitude);
  Floats p = t * -2.647185181e-2F + 1.411499332e-1F;
  p = p * t - 2.764138278e-1F;
  p = p * t + 2.057773139e-1F;
  p = p * t - 4.708447515e-2F;
  p = p * t + 1.163141273e-1F;
  p = p * t + 1.149675569e-1F;
  p = p * t + 1.361423796e-1F;
  p = p * t + 1.356188563e-1F;
  tail = e * (p * t);
  density = e * 3.989422804e-1F;
}

// Computes the activation of x and its derivative. The loops that read only one of the two results do not compute the
// other, since the function is inlined.
template <Activation kind>
MH_INLINE void activate(const Floats& x, Floats& value, Floats& slope) {
  const Floats zeros{};
  Floats ones;
  fill(ones, 1);
  if constexpr (kind == Activation::none) {
    value = x, slope = ones;
  } else if constexpr (kind == Activation::relu) {
    value = select(x < 0.0F, zeros, x);
    slope = select(x > 0.0F, ones, zeros);
  } else if constexpr (kind == Activation::gelu) {
    Floats tail, density;
    normal_distribution(x, tail, density);
    value = select(x < 0.0F, x * tail, x - x * tail);
    slope = select(x < 0.0F, tail, 1.0F - tail) + x * density;
  } else if constexpr (kind == Activation::gelu_tanh) {
    // (1 + tanh(u)) / 2 = σ(2u), with 2u = x (a + b x²)
    constexpr float a = 1.595769122F, b = 7.135481627e-2F;
    const Floats square = x * x;
    Floats sigma, sigma_slope;
    sigmoid(x * (a + b * square), sigma, sigma_slope);
    value = x * sigma;
    slope = sigma + x * (a + 3 * b * square) * sigma_slope;
  } else {
    Floats sigma, sigma_slope;
    sigmoid(x, sigma, sigma_slope);
    value = x * sigma;
    slope = sigma + x * sigma_slope;
  }
}

template <Activation kind, class T>
MH_INLINE void forward_elements(const T* gate, const T* up, T* y, int64_t n) {
  for (int64_t i = 0; i < n; i += lanes) {
    Floats g, u, value, slope;
    load_partial(gate + i, n - i, g);
    load_partial(up + i, n - i, u);
    activate<kind>(g, value, slope);
    value = value * u;
    store_partial(value, n - i, y + i);
  }
}

template <Activation kind, class T>
MH_INLINE void backward_elements(const T* gate, const T* up, const T* dy, T* dgate, T* dup, int64_t n) {
  for (int64_t i = 0; i < n; i += lanes) {
    Floats g, u, d, value, slope;
    load_partial(gate + i, n - i, g);
    load_partial(up + i, n - i, u);
    load_partial(dy + i, n - i, d);
    activate<kind>(g, value, slope);
    slope = d * u * slope;
    value = d * value;
    store_partial(slope, n - i, dgate + i);
    store_partial(value, n - i, dup + i);
  }
}

}  // namespace

template <SimdLevel L, class T>
void GatedActivationLoops<L, T>::forward(Activation kind, const T* gate, const T* up, T* y, int64_t n) {
  switch (kind) {
    case Activation::none:
      return forward_elements<Activation::none>(gate, up, y, n);
    case Activation::relu:
      return forward_elements<Activation::relu>(gate, up, y, n);
    case Activation::gelu:
      return forward_elements<Activation::gelu>(gate, up, y, n);
    case Activation::gelu_tanh:
      return forward_elements<Activation::gelu_tanh>(gate, up, y, n);
    case Activation::silu:
      return forward_elements<Activation::silu>(gate, up, y, n);
  }
}

template <SimdLevel L, class T>
void GatedActivationLoops<L, T>::backward(Activation kind, const T* gate, const T* up, const T* dy, T* dgate, T* dup,
                                          int64_t n) {
  switch (kind) {
    case Activation::none:
      return backward_elements<Activation::none>(gate, up, dy, dgate, dup, n);
    case Activation::relu:
      return backward_elements<Activation::relu>(gate, up, dy, dgate, dup, n);
    case Activation::gelu:
      return backward_elements<Activation::gelu>(gate, up, dy, dgate, dup, n);
    case Activation::gelu_tanh:
      return backward_elements<Activation::gelu_tanh>(gate, up, dy, dgate, dup, n);
    case Activation::silu:
      return backward_elements<Activation::silu>(gate, up, dy, dgate, dup, n);
  }
}

template struct GatedActivationLoops<kSimdLevel, float>;
template struct GatedActivationLoops<kSimdLevel, uint16_t>;

}  // namespace mh::kernels
