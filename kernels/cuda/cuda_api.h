// The interface of the shared library libmultihead-cuda.so, which nvcc builds from the CUDA kernels: a table of plain
// functions. The library is opened only if a GPU is used. It depends neither on lib/ nor on LibTorch.
//
// Tensors are in GPU memory; a void* points to elements of the type that a Dtype argument names. Each function with a
// parameter `stream` (cudaStream_t) launches kernels asynchronously on this stream, and returns null, or a description
// of the problem if a launch fails.
#pragma once

#include <cstdint>

#include "cross_entropy_params.h"
#include "cuda/attention.h"
#include "cuda/optimizer.h"
#include "cuda/sum_norm.h"
#include "dropout_params.h"

namespace mh::kernels {

// The element type of the tensors of a kernel. A build may lack the attention kernels of some types
// (missing_kernels()).
enum class Dtype : uint8_t { fp32, bf16, fp16 };

struct CudaApi {
  // For i < count, computes y[i] = x[i] * range.params.scale, or y[i] = 0 if the random stream drops element i
  // (DropoutRange). The `count` elements are whole runs of `range`.
  const char* (*dropout)(Dtype dtype, const DropoutRange& range, const void* x, void* y, int64_t count, void* stream);
  // Computes `losses` (rows) from `logits` (rows, vocabulary) and `targets` (rows), and, if params.needs_gradient,
  // replaces `logits` by the gradient (kernels/cpu/cross_entropy.h). `logits` is aligned to 16 bytes. Targets are below
  // params.vocabulary_size; if the target of a row is negative, the loss and the gradient of the row are zero.
  const char* (*cross_entropy)(Dtype dtype, const CrossEntropyParams& params, int64_t rows, void* logits,
                               const int64_t* targets, CrossEntropyLoss* losses, void* stream);
  // sum_norm() computes the residual sum s = x + dropout(y) and its norm, in all rows; sum_norm_backward()
  // computes the gradients of x, y, weight and bias (sum_norm_params.h). `params` and params.dropout are in host
  // memory; all other pointers refer to GPU memory. tensors.y and tensors.dy have the type `y_dtype`.
  const char* (*sum_norm)(Dtype y_dtype, const SumNormParams& params, const SumNormTensors& tensors, void* stream);
  const char* (*sum_norm_backward)(Dtype y_dtype, const SumNormParams& params, const SumNormTensors& tensors,
                                   void* stream);
  // Update `count` parameter tensors (optimizer_rules.h). `updates`: an array of `count` elements in host memory.
  const char* (*adam)(const Update<AdamParams>* updates, int64_t count, void* stream);
  const char* (*sgd)(const Update<MomentumParams>* updates, int64_t count, void* stream);
  const char* (*nag)(const Update<NagParams>* updates, int64_t count, void* stream);
  // Computes partial sums of squares: one for each chunk of kUpdateChunkSize elements of each of `count` tensors, in
  // the order of the tensors. `spans` is an array in host memory, and `sums`, with one element for each chunk, an array
  // in GPU memory.
  const char* (*sum_of_squares)(const FloatSpan* spans, int64_t count, double* sums, void* stream);
  // attention_kernels() returns the attention kernels of a type for the smallest compiled head size of at least
  // head_size; null if this build has no such kernels. In this case missing_kernels() returns a description of what the
  // build lacks, valid until its next call in this thread; otherwise it returns null.
  const AttentionKernels* (*attention_kernels)(Dtype dtype, int head_size);
  const char* (*missing_kernels)(Dtype dtype, int head_size);
  // Returns null if the limits of the current GPU can be read; otherwise a description of the error. After an error,
  // the constraints of AttentionKernels are meaningless.
  const char* (*device_problem)();
};

// The name of the only exported symbol of the library, a function without parameters that returns const CudaApi*.
constexpr const char* kCudaApiSymbol = "multihead_cuda_api";

}  // namespace mh::kernels
