// Self-attention of one decoding step on a CPU, by a kernel that reads the key/value cache in place
// (kernels/cpu/cached_attention.h).
#pragma once

#include "attention/cache.h"

namespace mh::attention {

struct AttentionSpec;  // attention/fused/attention_spec.h

// Appends k and v (B, hkv, 1, dk) to the cache and returns softmax(scale q Kᵀ) V (B, h, 1, dk) over all cached
// positions, stored as (B, 1, h, dk), for q (B, h, 1, dk). With a causal mask and a window, the query sees the last
// spec.window positions only. Query head j reads the key/value head spec.kv_head_of[j]; if that list is empty,
// hkv = h. q, k and v have the types and sizes that fused_cpu() accepts (attention/fused/fused_cpu.h). `spec` must have
// no key lengths, dropout, scale factors of heads or relative positions; a position bias has one key range. Not
// differentiable.
at::Tensor cached_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const AttentionSpec& spec,
                            Cache& cache);

}  // namespace mh::attention
