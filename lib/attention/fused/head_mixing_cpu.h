// Attention with head mixing after the normaliser on a CPU, by the kernel of kernels/cpu/head_mixing_attention.h: with
// softmax, out_i = (Σ_j m[j, i] softmax(q_j k_jᵀ / √dk)) v_i. Each thread stores the probabilities of one tile of
// queries at a time.
#pragma once

#include <ATen/core/Tensor.h>

#include "attention/cache.h"

namespace mh::attention {

struct AttentionSpec;  // attention/fused/attention_spec.h

// Returns out (B, hv, Tq, dv), stored as (B, Tq, hv, dv), with the mask and the other properties of `spec`, for q (B,
// h, Tq, dk), k (B, h, Tk, dk), v (B, hv, Tk, dv) and m (h, hv), (B, h, hv) or (B, Tq, h, hv). The sizes are arbitrary,
// but no tensor may be empty, and the types of q, k and v must satisfy are_cpu_kernel_types(). The scale factors
// spec.head_scales, (hv) or (B, hv), multiply the columns of m. Differentiable in q, k, v, m, relative positions and
// scale factors. Besides the operands, only the log-sum-exp of each query and head is saved for the backward pass.
// Bit-identical for every number of threads.
at::Tensor head_mixing_cpu(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& m,
                           const AttentionSpec& spec);

// Computes a step of incremental decoding: appends k (B, h, 1, dk) and v (B, hv, 1, dv) to the cache, and returns the
// attention (B, hv, 1, dv) of q (B, h, 1, dk) over all cached positions. `spec` must have no mask, dropout or relative
// positions. Not differentiable.
at::Tensor head_mixing_decode_cpu(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& m,
                                  const AttentionSpec& spec, Cache& cache);

}  // namespace mh::attention
