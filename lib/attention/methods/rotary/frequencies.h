// The frequencies of rotary positions and their scaling for long texts. Symbols: r number of elements of a head that
// rotate; s factor of the scaling; L0 original length; n length, the number of positions up to the last position of the
// present input; w_i = base^(-2i/r), i < r/2, the angle of pair i per position, in radians; λ_i = 2π / w_i.
//
//   linear    w_i / s
//   dynamic   w_i with the base  base ((s n / L0) - (s - 1))^(r / (r - 2)),  n at least L0 (NTK scaling)
//   llama3    w_i if λ_i < L0 / high_factor;  w_i / s if λ_i > L0 / low_factor;  otherwise (1 - u) w_i / s + u w_i,
//             u = (L0 / λ_i - low_factor) / (high_factor - low_factor)
//   yarn      w_i (1 - ramp_i) + w_i / s · ramp_i,  ramp_i = clamp((i - low) / (high - low), 0, 1),
//             low = c(beta_fast), high = c(beta_slow), rounded down and up with `truncate`, clamped to [0, r - 1],
//             c(ρ) = r ln(L0 / (2π ρ)) / (2 ln base)
//   longrope  w_i / f_i, f the list short_factors if n <= L0, otherwise long_factors
//   proportional  w_i for i < `size` / 2, otherwise 0, where r is the head size
//
// yarn and longrope also multiply cosines and sines by attention_factor(). The arithmetic is fp32 with fp32 powers, in
// the order in which transformers computes it, so that the angles have the same bits: in double precision, an angle
// would differ by about 1e-7 of its size, which is visible beyond a few thousand positions.
//
// Sources: Su et al. 2021 (RoFormer), Peng et al. 2023 (YaRN), Ding et al. 2024 (LongRoPE), Llama Team 2024 (Llama 3);
// proportional: the layers without a window of Gemma 4.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <utility>

#include "attention/methods/rotary/rotary_options.h"

namespace mh::attention {

// Returns whether the frequencies depend on the length n.
bool depends_on_length(const RotaryOptions& options);

// Returns one length for all lengths that have the same frequencies as length n: 0 if the frequencies do not depend
// on n; for dynamic max(n, L0); for longrope L0 or, above L0, L0 + 1.
int64_t frequency_length(const RotaryOptions& options, int64_t length);

// Returns the scaled frequencies (r / 2), fp32, for inputs of length n = `length`.
at::Tensor rotary_frequencies(const RotaryOptions& options, int64_t rotary_size, int64_t length);

// Returns the factor of cosines and sines; 1 for all scalings but yarn and longrope.
double attention_factor(const RotaryOptions& options);

// Returns the base of the scaling dynamic for inputs of length n = `length`.
double dynamic_base(const RotaryOptions& options, int64_t rotary_size, int64_t length);

// Returns the bounds low and high of the ramp of the scaling yarn, clamped to [0, r - 1].
std::pair<double, double> yarn_bounds(const RotaryOptions& options, int64_t rotary_size);

}  // namespace mh::attention
