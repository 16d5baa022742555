// Plain attention through the project's own kernel (kernels/cpu/attention.h): the layers of every model without mixing.
//
// LibTorch's fused attention sends its small products to MKL or makes a oneDNN primitive for each; at d 32 and n 256
// the kernel takes a third of its time.
#pragma once

#include <ATen/core/Tensor.h>

namespace mh::attention {

struct AttentionSpec;  // attention/fused/attention_spec.h

// Whether the kernel takes these: fp32 or bf16 on a CPU, sizes of queries, keys and values equal and a multiple of 16.
bool has_fused_cpu(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v);

// q (B, h, Tq, d), k and v (B, h, Tk, d) -> (B, h, Tq, d) = softmax(q kᵀ / √d) v, or as the spec says, stored as (B,
// Tq, h, d); with key_heads k and v may have other numbers of heads. Differentiable, in the spec's relative positions
// and scales of heads too; nothing but the log-sum-exp of each query is kept for the backward pass.
at::Tensor fused_cpu(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const AttentionSpec& spec);

}  // namespace mh::attention
