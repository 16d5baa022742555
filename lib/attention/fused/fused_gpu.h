// Attention on a GPU with or without head mixing, by the kernels of kernels/cuda/attention.h, for layers that SDPA
// cannot compute, and for masks that SDPA would read as a tensor. The kernels use O(T) memory. They use no atomic
// additions, so results are bit-identical in every run.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

#include "attention/layer_spec.h"

namespace mh::kernels {
struct AttentionKernels;  // kernels/cuda/attention.h
}

namespace mh::attention {

struct AttentionSpec;  // attention/fused/attention_spec.h

// The kernels for one element type, one GPU and head sizes up to kernels->max_head_size, and the CUDA stream for their
// launches.
struct GpuKernels {
  const kernels::AttentionKernels* kernels = nullptr;
  void* stream = nullptr;
};

// Returns the kernels for q, k and v; null for tensors on a CPU or of different types, or if this build has no kernels
// for their type and head sizes.
GpuKernels gpu_kernels(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v);
// The constraints of the kernels on a layer with elements of type `type`. Each function returns why the kernels cannot
// compute the layer, empty if the constraint is met, and requires that the constraints before it are met.
//
// The kernels support the element type.
std::string why_no_gpu_type(at::ScalarType type);
// This build has kernels for the element type and the head sizes. Throws Error(device) if the limits of the current
// GPU, which the constraints on relative positions and on head mixing read, are unknown.
std::string why_no_gpu_kernels(at::ScalarType type, const LayerSpec& layer_spec);
// The current GPU can add relative positions without head mixing.
std::string why_no_gpu_relative_positions(at::ScalarType type, const LayerSpec& layer_spec);
// The kernels support logit terms of AttentionSpec: a soft cap, sinks, a position bias, or a window without a causal
// mask. A layer without logit terms meets the constraint without a call. has_head_mixing, has_relative_positions:
// properties of the layer.
std::string why_no_gpu_logit_terms(at::ScalarType type, const LayerSpec& layer_spec, bool has_head_mixing,
                                   bool has_relative_positions);
// The current GPU can mix the heads, with or without relative positions.
std::string why_no_gpu_head_mixing(at::ScalarType type, const LayerSpec& layer_spec, bool has_relative_positions);

// Returns softmax(q kᵀ / √dk) v (B, h, Tq, dv), stored as (B, Tq, h, dv), with the mask and the other properties of
// `spec`, for q (B, h, Tq, dk), k (B, h, Tk, dk) and v (B, h, Tk, dv). If spec.kv_head_of is set, k and v may have a
// number of heads other than h. Differentiable in q, k, v, relative positions, sinks, position biases and scale factors
// of heads.
at::Tensor fused_gpu(const GpuKernels& gpu, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                     const AttentionSpec& spec);

// Returns attention with head mixing, out_i = (Σ_j m[j, i] softmax(q_j k_jᵀ / √dk)) v_i (B, hv, Tq, dv), stored as (B,
// Tq, hv, dv), with the mask and the other properties of `spec`, for q (B, h, Tq, dk), k (B, h, Tk, dk), v (B, hv, Tk,
// dv) and m (h, hv), (B, h, hv) or (B, Tq, h, hv). Differentiable in q, k, v, m, relative positions and scale factors
// of heads.
at::Tensor head_mixing_gpu(const GpuKernels& gpu, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                           const at::Tensor& m, const AttentionSpec& spec);

}  // namespace mh::attention
