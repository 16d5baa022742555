// The CUDA kernels as a table of plain functions. nvcc builds them into a library of their own (libmultihead-cuda.so),
// which is opened only if a GPU is used; it depends neither on lib/ nor on LibTorch.
//
// All tensors are in device memory; a tensor of type Dtype is passed as void*. Each function launches asynchronously on
// the given stream, a CUDA handle, and returns null or CUDA's message of a failed launch.
#pragma once

#include <cstdint>

#include "cross_entropy_plan.h"
#include "cuda/attention.h"
#include "cuda/optimizer.h"
#include "cuda/sum_norm.h"
#include "dropout_plan.h"

namespace mh::kernels {

// The type of attention kernels, and of tensors that other kernels read and write.
enum class Dtype : uint8_t { fp32, bf16, fp16 };

struct CudaApi {
  // As kernels/cpu/dropout.h.
  const char* (*dropout)(Dtype type, const Dropout& params, uint64_t first, const void* x, void* y, int64_t count,
                         void* stream);
  // As kernels/cpu/cross_entropy.h, for rows: logits (rows, vocabulary) aligned to 16 bytes, targets and losses (rows).
  // A negative target gives zeros; any other is below `vocabulary`.
  const char* (*cross_entropy)(Dtype type, const CrossEntropy& params, int64_t rows, void* logits,
                               const int64_t* targets, CrossEntropyRow* losses, void* stream);
  // As kernels/cpu/layer_norm.h; `params` and its `dropout` are in host memory. y and dy have the type `y`.
  const char* (*sum_norm)(Dtype y, const SumNorm& params, const SumNormTensors& x, void* stream);
  const char* (*sum_norm_backward)(Dtype y, const SumNorm& params, const SumNormTensors& x, void* stream);
  // As kernels/cpu/optimizer.h, for `count` tensors in an array in host memory.
  const char* (*adam)(const Update<AdamPlan>* updates, int64_t count, void* stream);
  const char* (*sgd)(const Update<MomentumPlan>* updates, int64_t count, void* stream);
  const char* (*nag)(const Update<NagPlan>* updates, int64_t count, void* stream);
  // Computes sums of squares, one for each of chunks_of() of each tensor, tensor after tensor.
  const char* (*squares)(const FloatSpan* spans, int64_t count, double* sums, void* stream);
  // Returns the attention kernels of the type for the smallest compiled head size of at least head_size; null if there
  // are none. missing() then names the kernels that this build lacks; its text is valid until the thread's next call.
  const AttentionKernels* (*attention)(Dtype dtype, int head_size);
  const char* (*missing)(Dtype dtype, int head_size);
};

// The only symbol of the library.
constexpr const char* kCudaApiSymbol = "multihead_cuda_api";

}  // namespace mh::kernels
