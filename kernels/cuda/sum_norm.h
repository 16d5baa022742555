// What the GPU's kernels of sum_norm_plan.h read and write. All pointers are to device memory.
#pragma once

#include "sum_norm_plan.h"

namespace mh::kernels {

// Widest rows: one stands in the shared memory that every GPU gives a block.
constexpr int64_t kMostSumNorm = 12000;

// (rows, size), but for mean and factor (rows); y and dy are of a type that the call names, all else is fp32.
struct SumNormTensors {
  int64_t rows = 0;
  const float* x = nullptr;
  const void* y = nullptr;
  float *sum = nullptr, *norm = nullptr, *mean = nullptr, *factor = nullptr;  // as in kernels/cpu/layer_norm.h
  // Of the gradient, which reads sum, mean and factor where dnorm is. One of dsum and dnorm may be null. dy null: it is
  // dx. dweight and dbias (pieces of `piece` rows, size): the sums over the rows of each piece.
  const float *dsum = nullptr, *dnorm = nullptr;
  float* dx = nullptr;
  void* dy = nullptr;
  float *dweight = nullptr, *dbias = nullptr;
  int64_t piece = 0;
};

}  // namespace mh::kernels
