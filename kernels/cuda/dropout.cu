#include <cuda_bf16.h>

#include "cuda/launch.h"
#include "cuda/philox.h"
#include "cuda/table.h"

namespace mh::kernels {

namespace {

__device__ float to_float(float x) { return x; }
__device__ float to_float(__nv_bfloat16 x) { return __bfloat162float(x); }
__device__ void from_float(float x, float& y) { y = x; }
__device__ void from_float(float x, __nv_bfloat16& y) { y = __float2bfloat16_rn(x); }

// A thread takes the four elements of one counter, of which the first and last counters may hold fewer.
template <class T>
__global__ void dropout_kernel(Dropout how, uint64_t first, const T* x, T* y, int64_t count) {
  const uint64_t last = first + static_cast<uint64_t>(count), groups = (last + 3) / 4;
  const uint64_t stride = static_cast<uint64_t>(gridDim.x) * blockDim.x;
  for (uint64_t g = first / 4 + static_cast<uint64_t>(blockIdx.x) * blockDim.x + threadIdx.x; g < groups; g += stride) {
    const PhiloxWords words = philox(how, g);
#pragma unroll
    for (uint64_t k = 0; k < 4; ++k) {
      const uint64_t position = 4 * g + k;
      if (position < first || position >= last) continue;
      from_float(keeps(how, words.word[k]) ? to_float(x[position - first]) * how.scale : 0.0f, y[position - first]);
    }
  }
}

template <class T>
const char* launch(const Dropout& how, uint64_t first, const T* x, T* y, int64_t count) {
  if (count == 0) return nullptr;
  dropout_kernel<<<blocks_for(count / 4 + 2), kThreads>>>(how, first, x, y, count);
  return launched();
}

}  // namespace

const char* cuda_dropout_f32(const Dropout& how, uint64_t first, const float* x, float* y, int64_t count) {
  return launch(how, first, x, y, count);
}

const char* cuda_dropout_bf16(const Dropout& how, uint64_t first, const uint16_t* x, uint16_t* y, int64_t count) {
  return launch(how, first, reinterpret_cast<const __nv_bfloat16*>(x), reinterpret_cast<__nv_bfloat16*>(y), count);
}

}  // namespace mh::kernels
