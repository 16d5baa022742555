// The joint projection of queries, keys and values as three tensors of heads.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>

namespace mh::attention {

// Splits a joint projection (B, T, 2 h key_size + hv value_size) into q, k (B, h, T, key_size) and v (B, hv, T,
// value_size), views of it. Gradients that the CPU's kernels make (empty_gradients, autograd.h) become the gradient of
// the projection without a copy.
std::array<at::Tensor, 3> split_projection(const at::Tensor& joint, int64_t heads, int64_t key_size,
                                           int64_t value_heads, int64_t value_size);

}  // namespace mh::attention
