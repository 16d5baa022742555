// Attention without head mixing on a CPU, with our kernel (kernels/cpu/attention.h).
//
// SDPA sends its small products to MKL or creates a oneDNN primitive for each; with d 32 and n 256 the kernel takes a
// third of its time.
#pragma once

#include <ATen/core/Tensor.h>

namespace mh::attention {

struct AttentionSpec;  // attention/fused/attention_spec.h

// Returns whether the kernel takes these tensors: fp32 or bf16 on a CPU, with equal sizes of queries, keys and values,
// a multiple of 16.
bool has_fused_cpu(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v);

// Returns softmax(q kᵀ / √d) v (B, h, Tq, d), stored as (B, Tq, h, d), with the mask and the other options of the spec,
// for q (B, h, Tq, d), k and v (B, h, Tk, d). With key_heads, k and v may have other numbers of heads. Differentiable,
// also in relative positions and head scales. Besides operands and result, only the log-sum-exp of each query is saved
// for the backward pass.
at::Tensor fused_cpu(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const AttentionSpec& spec);

}  // namespace mh::attention
