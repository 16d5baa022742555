// Plain attention through the project's own kernel (kernels/cpu/attention.h): the layers of every model without mixing.
//
// LibTorch's fused attention sends its small products to MKL or makes a oneDNN primitive for each; at d 32 and n 256
// the kernel takes a third of its time.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>

namespace mh::attention {

struct AttentionSpec;  // attention/fused/attention_spec.h

// Whether the kernel takes these: fp32 or bf16 on a CPU, sizes of queries, keys and values equal and a multiple of 16.
bool has_fused_cpu(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v);

// q (B, h, Tq, d), k and v (B, h, Tk, d) -> (B, h, Tq, d) = softmax(q kᵀ / √d) v, or as the spec says, stored as (B,
// Tq, h, d); with key_heads k and v may have other numbers of heads. Differentiable, in the spec's relative positions
// and scales of heads too; nothing but the log-sum-exp of each query is kept for the backward pass.
at::Tensor fused_cpu(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const AttentionSpec& spec);

// A joint projection (B, T, 2 h key_size + hv value_size) -> q, k (B, h, T, key_size) and v (B, hv, T, value_size),
// views of it. Their gradients, when fused_cpu makes them, are taken as the projection's without a copy.
std::array<at::Tensor, 3> split_projection(const at::Tensor& joint, int64_t heads, int64_t key_size,
                                           int64_t value_heads, int64_t value_size);

}  // namespace mh::attention
