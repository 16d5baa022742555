// Attention on a GPU, with our kernels (kernels/cuda/attention.h), with head mixing and without, for layers that SDPA
// cannot compute. The kernels use O(T) memory and no atomic additions, so results are bit-identical in every run.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

#include "attention/layer_spec.h"

namespace mh::kernels {
struct AttentionKernels;  // kernels/cuda/attention.h
}

namespace mh::attention {

struct AttentionSpec;  // attention/fused/attention_spec.h

// The kernels of one type and device, for head sizes up to kernels->size, and the stream that they are launched on.
struct GpuKernels {
  const kernels::AttentionKernels* kernels = nullptr;
  void* stream = nullptr;
};

// Returns the kernels of this build for q, with k and v of the same type; null on a CPU, or if why_not_fused_on_gpu()
// gives a reason.
GpuKernels gpu_kernels(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v);
// Returns why the kernels of this build, on the current GPU, cannot take the type (fp32, bf16 or fp16) and the sizes of
// a layer; empty if they can.
std::string why_not_fused_on_gpu(at::ScalarType type, const LayerSpec& shape, bool mixes, bool positions);

// Returns softmax(q kᵀ / √dk) v (B, h, Tq, dv), stored as (B, Tq, h, dv), with the mask and the other options of the
// spec, for q (B, h, Tq, dk), k (B, h, Tk, dk) and v (B, h, Tk, dv). Differentiable, also in head scales and relative
// positions.
at::Tensor fused_gpu(const GpuKernels& gpu, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                     const AttentionSpec& spec);

// Returns (B, hv, Tq, dv), stored as (B, Tq, hv, dv), as head_mixing_cpu(), for q (B, h, Tq, dk), k (B, h, Tk, dk), v
// (B, hv, Tk, dv) and m (h, hv), (B, h, hv) or (B, Tq, h, hv). Differentiable in all four, in head scales and in
// relative positions.
at::Tensor head_mixing_gpu(const GpuKernels& gpu, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                           const at::Tensor& m, const AttentionSpec& spec);

}  // namespace mh::attention
