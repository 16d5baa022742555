// The end of each sublayer: residual sum with dropout of the sublayer's output, and the layer norm of the sum: s = x +
// dropout(y), n = weight * (s - mean) * factor + bias, factor = 1 / sqrt(variance + epsilon).
#pragma once

#include <cstdint>

#include "dropout_plan.h"

namespace mh::kernels {

struct SumNorm {
  int64_t size = 0;                                // size of a row
  const float *weight = nullptr, *bias = nullptr;  // (size)
  float epsilon = 0;
  const Dropout* dropout =
      nullptr;  // dropout of y, or null: element i of row r is element dropout_first + r * size + i
  uint64_t dropout_first = 0;
};

// (rows, size), except mean and factor (rows); y and dy have a type that the call names, all others are fp32.
struct SumNormTensors {
  int64_t rows = 0;
  const float* x = nullptr;
  const void* y = nullptr;
  float *sum = nullptr, *norm = nullptr, *mean = nullptr,
        *factor = nullptr;  // norm null: only the sum; sum null: not stored; mean and factor: both or none
  // Gradients. The backward pass reads sum, mean and factor if dnorm is set. One of dsum and dnorm may be null. dy
  // null: it equals dx. dweight and dbias (chunks of `piece` rows, size): sums over the rows of each chunk.
  const float *dsum = nullptr, *dnorm = nullptr;
  float* dx = nullptr;
  void* dy = nullptr;
  float *dweight = nullptr, *dbias = nullptr;
  int64_t piece = 0;
};

}  // namespace mh::kernels
