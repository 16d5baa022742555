// Computes the frequencies of rotary positions.
#include "attention/methods/rotary/frequencies.h"

#include <ATen/ops/pow.h>
#include <ATen/ops/scalar_tensor.h>

#include <algorithm>
#include <cmath>

#include "nn/aten.h"

namespace mh::attention {

namespace {

constexpr double kTwoPi = 6.283185307179586;
constexpr double kMinRampWidth = 0.001;  // width of the ramp of yarn if both bounds are equal, as in transformers

// Returns 2i / r (r / 2), fp32.
at::Tensor exponents(int64_t rotary_size) {
  return at::arange(0, rotary_size, 2, at::kLong).to(at::kFloat) / rotary_size;
}

// Returns base^(2i / r) (r / 2), fp32, the reciprocals of the frequencies without scaling.
at::Tensor powers(const RotaryOptions& o, int64_t rotary_size) {
  return at::pow(at::Scalar(o.base), exponents(rotary_size));
}

// Returns the base of the scaling dynamic as a scalar tensor, fp32.
at::Tensor dynamic_base_tensor(const RotaryOptions& o, int64_t rotary_size, int64_t length) {
  const at::Tensor n = at::scalar_tensor(std::max(length, o.original_length), at::kLong);
  const double exponent = static_cast<double>(rotary_size) / static_cast<double>(rotary_size - 2);
  return (n * o.factor / o.original_length - (o.factor - 1)).pow(exponent) * o.base;
}

at::Tensor llama3_frequencies(const RotaryOptions& o, const at::Tensor& frequencies) {
  const auto length = static_cast<double>(o.original_length);
  const at::Tensor wavelengths = frequencies.reciprocal() * kTwoPi, divided = frequencies / o.factor;
  const at::Tensor is_long = wavelengths > length / o.low_factor, is_short = wavelengths < length / o.high_factor;
  const at::Tensor u = (wavelengths.reciprocal() * length - o.low_factor) / (o.high_factor - o.low_factor);
  const at::Tensor blended = (1 - u) * frequencies / o.factor + u * frequencies;
  return at::where(is_short, frequencies, at::where(is_long, divided, blended));
}

at::Tensor yarn_frequencies(const RotaryOptions& o, int64_t rotary_size) {
  const at::Tensor p = powers(o, rotary_size);
  const at::Tensor unchanged = p.reciprocal(), divided = (p * o.factor).reciprocal();
  const auto [low, high] = yarn_bounds(o, rotary_size);
  const double width = low == high ? kMinRampWidth : high - low;
  const at::Tensor ramp = ((at::arange(rotary_size / 2, at::kFloat) - low) / width).clamp(0, 1);
  const at::Tensor share_unchanged = 1 - ramp;
  return divided * (1 - share_unchanged) + unchanged * share_unchanged;
}

at::Tensor longrope_frequencies(const RotaryOptions& o, int64_t rotary_size, int64_t length) {
  const std::vector<double>& factors = length > o.original_length ? o.long_factors : o.short_factors;
  return (at::tensor(factors, at::kDouble).to(at::kFloat) * powers(o, rotary_size)).reciprocal();
}

at::Tensor proportional_frequencies(const RotaryOptions& o, int64_t rotary_size) {
  const int64_t num_rotated = (o.size > 0 ? o.size : rotary_size) / 2;
  const at::Tensor frequencies = powers(o, rotary_size).reciprocal();
  frequencies.narrow(0, num_rotated, rotary_size / 2 - num_rotated).zero_();
  return frequencies;
}

}  // namespace

bool depends_on_length(const RotaryOptions& o) {
  return o.scaling == RotaryScaling::dynamic || o.scaling == RotaryScaling::longrope;
}

int64_t frequency_length(const RotaryOptions& o, int64_t length) {
  if (o.scaling == RotaryScaling::dynamic) return std::max(length, o.original_length);
  return o.scaling == RotaryScaling::longrope ? o.original_length + (length > o.original_length ? 1 : 0) : 0;
}

at::Tensor rotary_frequencies(const RotaryOptions& o, int64_t rotary_size, int64_t length) {
  switch (o.scaling) {
    case RotaryScaling::none:
      break;
    case RotaryScaling::linear:
      return powers(o, rotary_size).reciprocal() / o.factor;
    case RotaryScaling::dynamic:
      if (length <= o.original_length) break;
      return at::pow(dynamic_base_tensor(o, rotary_size, length), exponents(rotary_size)).reciprocal();
    case RotaryScaling::llama3:
      return llama3_frequencies(o, powers(o, rotary_size).reciprocal());
    case RotaryScaling::yarn:
      return yarn_frequencies(o, rotary_size);
    case RotaryScaling::longrope:
      return longrope_frequencies(o, rotary_size, length);
    case RotaryScaling::proportional:
      return proportional_frequencies(o, rotary_size);
  }
  return powers(o, rotary_size).reciprocal();
}

double attention_factor(const RotaryOptions& o) {
  if (o.scaling != RotaryScaling::yarn && o.scaling != RotaryScaling::longrope) return 1;
  if (o.attention_factor > 0) return o.attention_factor;
  if (o.factor <= 1) return 1;
  if (o.scaling == RotaryScaling::longrope)
    return std::sqrt(1 + std::log(o.factor) / std::log(static_cast<double>(o.original_length)));
  const auto m = [&](double coefficient) { return 0.1 * coefficient * std::log(o.factor) + 1; };
  return o.mscale > 0 ? m(o.mscale) / m(o.mscale_all_dim) : m(1);
}

double dynamic_base(const RotaryOptions& o, int64_t rotary_size, int64_t length) {
  return dynamic_base_tensor(o, rotary_size, length).item<double>();
}

std::pair<double, double> yarn_bounds(const RotaryOptions& o, int64_t rotary_size) {
  // Returns the index of the frequency with this number of rotations in L0 positions.
  const auto index_of = [&](double rotations) {
    return static_cast<double>(rotary_size) * std::log(static_cast<double>(o.original_length) / (rotations * kTwoPi)) /
           (2 * std::log(o.base));
  };
  double low = index_of(o.beta_fast), high = index_of(o.beta_slow);
  if (o.truncate) low = std::floor(low), high = std::ceil(high);
  return {std::max(low, 0.0), std::min(high, static_cast<double>(rotary_size - 1))};
}

}  // namespace mh::attention
