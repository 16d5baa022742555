// Defines the exported table of functions of the CUDA library.
#include "cuda/cuda_api.h"
#include "cuda/launch.h"

namespace mh::kernels {

const char* cuda_dropout(Dtype, const DropoutRange&, const void*, void*, int64_t, void*);
const char* cuda_cross_entropy(Dtype, const CrossEntropyParams&, int64_t, void*, const int64_t*, CrossEntropyLoss*,
                               void*);
const char* cuda_sum_norm(Dtype, const SumNormParams&, const SumNormTensors&, void*);
const char* cuda_sum_norm_backward(Dtype, const SumNormParams&, const SumNormTensors&, void*);
const char* cuda_adam(const Update<AdamParams>*, int64_t, void*);
const char* cuda_sgd(const Update<MomentumParams>*, int64_t, void*);
const char* cuda_nag(const Update<NagParams>*, int64_t, void*);
const char* cuda_sum_of_squares(const FloatSpan*, int64_t, double*, void*);
const AttentionKernels* cuda_attention_kernels(Dtype, int);
const char* cuda_missing_kernels(Dtype, int);
const char* cuda_device_problem() {
  int bytes = 0;
  return read_attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin, bytes);
}

}  // namespace mh::kernels

extern "C" __attribute__((visibility("default"))) const mh::kernels::CudaApi* multihead_cuda_api() {
  using namespace mh::kernels;
  static const CudaApi table{
      cuda_dropout, cuda_cross_entropy,  cuda_sum_norm,          cuda_sum_norm_backward, cuda_adam,          cuda_sgd,
      cuda_nag,     cuda_sum_of_squares, cuda_attention_kernels, cuda_missing_kernels,   cuda_device_problem};
  return &table;
}
