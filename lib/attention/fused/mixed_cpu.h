// Attention whose heads are mixed behind the softmax, through the project's own kernel (kernels/cpu/mixed_attention.h):
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

// m as kernels read it, fp32, with what each head of the result is multiplied by, if anything: (h, hv), (B, h, hv) or
// (B, Tq, h, hv), contiguous.
at::Tensor weighed(const at::Tensor& m, const at::Tensor& scales);

// The same of one more position, q and k (B, h, 1, dk), v (B, hv, 1, dv), and of those of a cache, to which k and v are
// appended: a step of decoding. The spec: neither a mask, nor dropout, nor positions. Without a gradient.
at::Tensor mixed_in_place(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& m,
                          const AttentionSpec& spec, Cache& cache);

}  // namespace mh::attention
