// The GPU's table of kernels, of which each call runs thread by thread on the CPU, on its memory; without attention.
#pragma once

#include "cuda/cross_entropy.h"
#include "cuda/dispatch_dtype.h"
#include "cuda/dropout.h"
#include "cuda/optimizer_updates.h"
#include "cuda/sum_norm_rows.h"
#include "emulator/host_launcher.h"

namespace host {

inline mh::kernels::CudaApi table() {
  using namespace mh::kernels;
  CudaApi all{};
  all.dropout = [](Dtype type, const Dropout& how, uint64_t first, const void* x, void* y, int64_t count, void*) {
    return dispatch_dtype(type, [&](auto number) {
      Device device;
      return dropout<decltype(number)>(Launcher{device}, how, first, x, y, count);
    });
  };
  all.cross_entropy = [](Dtype type, const CrossEntropy& how, int64_t rows, void* logits, const int64_t* targets,
                         CrossEntropyRow* losses, void*) {
    return dispatch_dtype(type, [&](auto number) {
      Device device;
      return cross_entropy<decltype(number)>(Launcher{device}, how, rows, logits, targets, losses);
    });
  };
  all.sum_norm = [](Dtype y, const SumNorm& how, const SumNormTensors& x, void*) {
    return dispatch_dtype(y, [&](auto number) {
      Device device;
      return sum_norm<decltype(number)>(Launcher{device}, how, x);
    });
  };
  all.sum_norm_backward = [](Dtype y, const SumNorm& how, const SumNormTensors& x, void*) {
    return dispatch_dtype(y, [&](auto number) {
      Device device;
      return sum_norm_backward<decltype(number)>(Launcher{device}, how, x);
    });
  };
  all.adam = [](const Update<AdamPlan>* updates, int64_t count, void*) {
    Device device;
    return update(Launcher{device}, updates, count);
  };
  all.sgd = [](const Update<MomentumPlan>* updates, int64_t count, void*) {
    Device device;
    return update(Launcher{device}, updates, count);
  };
  all.nag = [](const Update<NagPlan>* updates, int64_t count, void*) {
    Device device;
    return update(Launcher{device}, updates, count);
  };
  all.squares = [](const FloatSpan* tensors, int64_t count, double* sums, void*) {
    Device device;
    return squares(Launcher{device}, tensors, count, sums);
  };
  return all;
}

}  // namespace host
