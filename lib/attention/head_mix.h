// Linear maps across heads, the operation of every method that mixes them: y_i = Σ_j m[j, i] x_j.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>

namespace mh::attention {

struct Mixing {
  // x is 0 for s > t + *causal_offset and is not looked at there, nor is its gradient: half of the work of a causal
  // square.
  std::optional<int64_t> causal_offset;
  // The result is stored as (B, T, h_out, S), so that joining heads needs no copy.
  bool by_position = false;
};

// x (B, h_in, T, S), m (h_in, h_out) -> (B, h_out, T, S). Of the large tensors the backward pass keeps x alone.
at::Tensor mix_heads(const at::Tensor& x, const at::Tensor& m, const Mixing& mixing = {});

// The same with a matrix for each position: m (B, T, h_in, h_out).
at::Tensor mix_heads_by_position(const at::Tensor& x, const at::Tensor& m, const Mixing& mixing = {});

}  // namespace mh::attention
