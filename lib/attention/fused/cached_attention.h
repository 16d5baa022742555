// Self-attention of one decoding step on a CPU, by a kernel that reads the key/value cache in place
// (kernels/cpu/cached_attention.h).
#pragma once

#include "attention/cache.h"

namespace mh::attention {

// Appends k and v to the cache and returns softmax(q Kᵀ / √d) V (B, h, 1, d) over all cached positions, stored as (B,
// 1, h, d). q, k and v (B, h, 1, d) have the types and sizes that fused_cpu() accepts (attention/fused/fused_cpu.h).
// Not differentiable.
at::Tensor cached_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, Cache& cache);

}  // namespace mh::attention
