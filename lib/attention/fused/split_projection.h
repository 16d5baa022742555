// Splits the joint projection of queries, keys and values into three tensors of heads.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>

namespace mh::attention {

// Returns views of a joint projection (B, T, 2 h key_size + hv value_size): q and k (B, h, T, key_size), v
// (B, hv, T, value_size). The backward pass copies nothing if the three gradients are slices of one tensor, as
// empty_gradients() (autograd.h) allocates them for the CPU kernels.
std::array<at::Tensor, 3> split_projection(const at::Tensor& joint, int64_t heads, int64_t key_size,
                                           int64_t value_heads, int64_t value_size);

}  // namespace mh::attention
