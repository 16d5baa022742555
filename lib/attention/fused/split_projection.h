// Splits the joint projection of queries, keys and values into a tensor of heads for each of them.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>

namespace mh::attention {

// Returns views of a joint projection (B, T, 2 h dk + hv dv): q and k (B, h, T, dk), v (B, hv, T, dv), with key_size =
// dk and value_size = dv. The backward pass copies nothing if the three gradients are adjacent slices of one tensor, as
// empty_gradients() (autograd.h) allocates them for the CPU kernels.
std::array<at::Tensor, 3> split_projection(const at::Tensor& qkv, int64_t num_heads, int64_t key_size,
                                           int64_t num_value_heads, int64_t value_size);

}  // namespace mh::attention
