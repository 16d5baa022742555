// Linear maps across heads, the operation of every method that mixes them: y_i = Σ_j m[j, i] x_j.
#pragma once

#include <ATen/core/Tensor.h>

#include "attention/causal_product.h"

namespace mh::attention {

// A learned matrix that a mixer takes across heads, (h, h) or (B, Tq, h, h): row of the source head. Shown to observers
// (Observer::show).
struct MixingObservation {
  at::Tensor matrix;
};

struct Mixing {
  // x counts for nothing where s > t + *causal_offset: it is not looked at there, nor is a gradient, and the result is
  // 0. Half of the work of a causal square.
  CausalOffset causal_offset;
  // The result is stored as (B, T, h_out, S), so that joining heads needs no copy.
  bool by_position = false;
};

// x (B, h_in, T, S), m (h_in, h_out), or (B, T, h_in, h_out) with a matrix for each position -> (B, h_out, T, S). Of
// the large tensors the backward pass keeps x alone.
at::Tensor mix_heads(const at::Tensor& x, const at::Tensor& m, const Mixing& mixing = {});

// Z_i = (Σ_j m[j, i] P_j) V_i by either kind of matrix: p (B, h_in, T, S), v (B, h_out, S, dv) -> (B, h_out, T, dv).
// The mixed probabilities are made again for the backward pass, so p is the only tensor of their size that is kept.
at::Tensor mix_values(const at::Tensor& p, const at::Tensor& m, const at::Tensor& v, const Mixing& mixing = {});

}  // namespace mh::attention
