// Self-attention of one more position through the project's own kernel (kernels/cpu/cached_attention.h): a step of
// decoding on a CPU.
#pragma once

#include "attention/cache.h"

namespace mh::attention {

// q, k, v (B, h, 1, d), for which has_fused_cpu (attention/fused/fused_cpu.h) holds: appends k and v to the cache ->
// (B, h, 1, d) = softmax(q Kᵀ / √d) V over all its positions, stored as (B, 1, h, d). Without a gradient.
at::Tensor cached_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, Cache& cache);

}  // namespace mh::attention
