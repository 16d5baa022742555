// Splits the joint projection of queries, keys and values into a tensor of heads for each of them.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>

namespace mh::attention {

// The numbers and sizes of the heads in a joint projection.
struct ProjectionSizes {
  int64_t query_heads, key_heads, value_heads, key_size, value_size;
};

// Returns views of a joint projection (B, T, h dk + g dk + gv dv): q (B, h, T, dk), k (B, g, T, dk) and v (B, gv, T,
// dv), for h query heads, g key heads and gv value heads. The backward pass copies nothing if the three gradients are
// adjacent slices of one tensor, as empty_gradients() (autograd.h) allocates them for the CPU kernels.
std::array<at::Tensor, 3> split_projection(const at::Tensor& qkv, const ProjectionSizes& sizes);

}  // namespace mh::attention
