// Attention through the project's own kernels on a GPU (kernels/cuda/attention.h), of heads that nothing mixes and of
// mixed ones: what the tensor library's fused attention does not do. O(T) memory, nothing added to in place: the same
// bits every time.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

#include "attention/shape.h"

namespace mh::kernels {
struct AttentionKernels;  // kernels/cuda/attention.h
}

namespace mh::attention {

struct AttentionSpec;  // attention/fused/attention_spec.h

// The kernels of a type and a device, and the stream that work goes to. Sizes up to kernels->size.
struct GpuKernels {
  const kernels::AttentionKernels* kernels = nullptr;
  void* stream = nullptr;
};

// Returns the kernels that this build has for q, with k and v of the same type; null on a CPU, or where unfused_on_gpu
// says why not.
GpuKernels gpu_kernels(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v);
// Returns why this build's kernels cannot take a type (fp32, bf16 or fp16) and a layer's sizes on the GPU at hand;
// empty: they can.
std::string unfused_on_gpu(at::ScalarType type, const Shape& shape, bool mixes, bool positions);

// q (B, h, Tq, dk), k (B, h, Tk, dk), v (B, h, Tk, dv) -> (B, h, Tq, dv) = softmax(q kᵀ / √dk) v, or as the spec
// says, stored as (B, Tq, h, dv). Differentiable, in scales of heads and relative positions too.
at::Tensor fused_gpu(const GpuKernels& gpu, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                     const AttentionSpec& spec);

// q (B, h, Tq, dk), k (B, h, Tk, dk), v (B, hv, Tk, dv), m (h, hv), (B, h, hv) or (B, Tq, h, hv) -> (B, hv, Tq, dv),
// stored as (B, Tq, hv, dv), as mixed_cpu. Differentiable in all four, in scales of heads and in relative positions.
at::Tensor mixed_gpu(const GpuKernels& gpu, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                     const at::Tensor& m, const AttentionSpec& spec);

}  // namespace mh::attention
