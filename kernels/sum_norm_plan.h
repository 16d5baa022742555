// The end of each sublayer: the sum of its input and its output, of which dropout may drop some, and the layer norm of
// the sum: s = x + dropout(y), n = weight * (s - mean) * factor + bias, factor = 1 / sqrt(variance +
// epsilon).
#pragma once

#include <cstdint>

#include "dropout_plan.h"

namespace mh::kernels {

struct SumNorm {
  int64_t size = 0;                                // of a row
  const float *weight = nullptr, *bias = nullptr;  // (size)
  float epsilon = 0;
  const Dropout* dropout = nullptr;  // of y, or null: element i of row r by element dropout_first + r * size + i
  uint64_t dropout_first = 0;
};

// (rows, size), but for mean and factor (rows); y and dy are of a type that the call names, all else is fp32.
struct SumNormTensors {
  int64_t rows = 0;
  const float* x = nullptr;
  const void* y = nullptr;
  float *sum = nullptr, *norm = nullptr, *mean = nullptr,
        *factor = nullptr;  // norm null: only the sum; sum null: it is not kept; mean and factor: both or none
  // Of the gradient, which reads sum, mean and factor where dnorm is. One of dsum and dnorm may be null. dy null: it is
  // dx. dweight and dbias (pieces of `piece` rows, size): the sums over the rows of each piece.
  const float *dsum = nullptr, *dnorm = nullptr;
  float* dx = nullptr;
  void* dy = nullptr;
  float *dweight = nullptr, *dbias = nullptr;
  int64_t piece = 0;
};

}  // namespace mh::kernels
