// A CudaApi whose kernels run in the emulator, on CPU memory. The members attention_kernels, missing_kernels and
// device_problem are null.
#pragma once

#include "cuda/cross_entropy.h"
#include "cuda/dispatch_dtype.h"
#include "cuda/dropout.h"
#include "cuda/optimizer_updates.h"
#include "cuda/sum_norm_rows.h"
#include "emulator/host_launcher.h"

namespace host {

inline mh::kernels::CudaApi emulated_api() {
  using namespace mh::kernels;
  CudaApi api{};
  api.dropout = [](Dtype dtype, const DropoutRange& range, const void* x, void* y, int64_t count, void*) {
    return dispatch_dtype(dtype, [&](auto zero) {
      EmulatedGpu gpu;
      return dropout<decltype(zero)>(Launcher{gpu}, range, x, y, count);
    });
  };
  api.cross_entropy = [](Dtype dtype, const CrossEntropyParams& params, int64_t rows, void* logits,
                         const int64_t* targets, CrossEntropyLoss* losses, void*) {
    return dispatch_dtype(dtype, [&](auto zero) {
      EmulatedGpu gpu;
      return cross_entropy<decltype(zero)>(Launcher{gpu}, params, rows, logits, targets, losses);
    });
  };
  api.sum_norm = [](Dtype y_dtype, const SumNormParams& params, const SumNormTensors& x, void*) {
    return dispatch_dtype(y_dtype, [&](auto zero) {
      EmulatedGpu gpu;
      return sum_norm<decltype(zero)>(Launcher{gpu}, params, x);
    });
  };
  api.sum_norm_backward = [](Dtype y_dtype, const SumNormParams& params, const SumNormTensors& x, void*) {
    return dispatch_dtype(y_dtype, [&](auto zero) {
      EmulatedGpu gpu;
      return sum_norm_backward<decltype(zero)>(Launcher{gpu}, params, x);
    });
  };
  api.adam = [](const Update<AdamParams>* updates, int64_t count, void*) {
    EmulatedGpu gpu;
    return update(Launcher{gpu}, updates, count);
  };
  api.sgd = [](const Update<MomentumParams>* updates, int64_t count, void*) {
    EmulatedGpu gpu;
    return update(Launcher{gpu}, updates, count);
  };
  api.nag = [](const Update<NagParams>* updates, int64_t count, void*) {
    EmulatedGpu gpu;
    return update(Launcher{gpu}, updates, count);
  };
  api.sum_of_squares = [](const FloatSpan* tensors, int64_t count, double* sums, void*) {
    EmulatedGpu gpu;
    return sum_of_squares(Launcher{gpu}, tensors, count, sums);
  };
  return api;
}

}  // namespace host
