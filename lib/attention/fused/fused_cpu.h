// Attention without head mixing on a CPU, by the kernel of kernels/cpu/attention.h.
//
// SDPA computes its small matrix products with MKL, or creates a oneDNN primitive for each product. With head size 32
// and 256 positions, this kernel takes a third of the time of SDPA.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace mh::attention {

struct AttentionSpec;  // attention/fused/attention_spec.h

// Returns the maximum number of queries for which fused_cpu() and head_mixing_cpu() use the decode kernel, in passes
// without gradients, dropout and relative positions; fused_cpu() uses it only with softmax (kernels/cpu/attention.h).
// The decode kernel rounds differently from the kernel for more queries.
int64_t max_decode_queries();

// Returns softmax(q kᵀ / √d) v (B, h, Tq, d), stored as (B, Tq, h, d), with the mask and the other properties of
// `spec`, for q (B, h, Tq, d), k and v (B, h, Tk, d). No tensor may be empty, the types must satisfy
// are_cpu_kernel_types(), and d must be a multiple of 16. If spec.kv_head_of is set, k and v may have a different
// number of heads. Differentiable in q, k, v, relative positions, sinks, the position bias and scale factors of heads.
// For the backward pass, only the log-sum-exp of each query is saved besides the operands and the result.
at::Tensor fused_cpu(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const AttentionSpec& spec);

}  // namespace mh::attention
