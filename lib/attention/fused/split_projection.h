// Splits the joint projection of queries, keys and values into a tensor of heads for each of them.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>

namespace mh::attention {

// The numbers and sizes of the heads of q, k and v in a joint projection.
struct ProjectionSizes {
  int64_t q_heads, k_heads, v_heads, key_size, value_size;
};

// Returns views of a joint projection, whose last axis has the heads of q, k and v: q (B, q_heads, T, key_size), k (B,
// k_heads, T, key_size) and v (B, v_heads, T, value_size). The backward pass copies nothing if the three gradients are
// adjacent slices of one tensor, as empty_gradients() (autograd.h) allocates them for the CPU kernels.
std::array<at::Tensor, 3> split_projection(const at::Tensor& qkv, const ProjectionSizes& sizes);

}  // namespace mh::attention
