// The project's CUDA kernels as a table of plain functions. They are built by nvcc into a library of their own
// (libmultihead-cuda.so), which is opened only where a GPU is used; it knows nothing of lib/ or of the tensor library.
//
// All pointers are to device memory. Work goes to the legacy default stream, which is the tensor library's too. Each
// returns nullptr, or CUDA's words for what went wrong at the launch.
#pragma once

#include <cstdint>

#include "cuda/attention.h"
#include "dropout_plan.h"
#include "optimizer_rules.h"

namespace mh::kernels {

// What attention kernels compute in.
enum class Dtype : uint8_t { fp32, bf16, fp16 };

struct CudaTable {
  // As kernels/cpu/dropout.h; the second takes bf16.
  const char* (*dropout_f32)(const Dropout& how, uint64_t first, const float* x, float* y, int64_t count);
  const char* (*dropout_bf16)(const Dropout& how, uint64_t first, const uint16_t* x, uint16_t* y, int64_t count);
  // As kernels/cpu/optimizer.h, over [0, count).
  const char* (*adam)(const AdamPlan& plan, int64_t count, float* p, const float* g, float* m, float* v);
  const char* (*sgd)(const MomentumPlan& plan, int64_t count, float* p, const float* g, float* buffer);
  const char* (*nag)(const NagPlan& plan, int64_t count, float* p, const float* g, float* buffer);
  // Attention kernels of the type, for the smallest head size that has place for this one; null where there are none,
  // and then what this build lacks, in words that last until the thread's next call.
  const AttentionKernels* (*attention)(Dtype dtype, int head_size);
  const char* (*lacks)(Dtype dtype, int head_size);
};

// The one symbol of the library.
constexpr const char* kCudaTableSymbol = "multihead_cuda_table";

}  // namespace mh::kernels
