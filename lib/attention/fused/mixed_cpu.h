// Attention whose heads are mixed after the softmax, through the project's own kernel (kernels/cpu/mixed_attention.h):
// out_i = (Σ_j m[j, i] softmax(q_j k_jᵀ / √dk)) v_i without ever holding probabilities of the size (h, Tq, Tk).
#pragma once

#include <ATen/core/Tensor.h>

#include "attention/cache.h"

namespace mh::attention {

struct AttentionSpec;  // attention/fused/attention_spec.h

// Whether the kernel takes these: fp32 or bf16 on a CPU, any sizes.
bool has_mixed_cpu(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v);

// q (B, h, Tq, dk), k (B, h, Tk, dk), v (B, hv, Tk, dv), m (h, hv) or (B, Tq, h, hv) -> (B, hv, Tq, dv), stored as
// (B, Tq, hv, dv). Scales of heads (hv) or (B, hv) multiply m. Differentiable in all four, and in the spec's relative
// positions and scales; the log-sum-exp of each query and head is kept for the backward pass, and nothing else that is
// larger than q, k and v. The same bits for any number of threads.
at::Tensor mixed_cpu(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& m,
                     const AttentionSpec& spec);

// A step of decoding: appends k (B, h, 1, dk) and v (B, hv, 1, dv) to the cache and attends from q (B, h, 1, dk) to all
// its positions. The spec has neither a mask, nor dropout, nor positions. Without a gradient.
at::Tensor mixed_in_place(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& m,
                          const AttentionSpec& spec, Cache& cache);

}  // namespace mh::attention
