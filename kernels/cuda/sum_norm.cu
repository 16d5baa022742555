// Dispatches residual sum, dropout and norm, and their gradients, to the kernels for a type of y.
#include "cuda/launcher.h"
#include "cuda/sum_norm_rows.h"

namespace mh::kernels {

const char* cuda_sum_norm(Dtype y_dtype, const SumNormParams& params, const SumNormTensors& tensors, void* stream) {
  return dispatch_dtype(y_dtype,
                        [&](auto zero) { return sum_norm<decltype(zero)>(Launcher{stream}, params, tensors); });
}

const char* cuda_sum_norm_backward(Dtype y_dtype, const SumNormParams& params, const SumNormTensors& tensors,
                                   void* stream) {
  return dispatch_dtype(
      y_dtype, [&](auto zero) { return sum_norm_backward<decltype(zero)>(Launcher{stream}, params, tensors); });
}

}  // namespace mh::kernels
