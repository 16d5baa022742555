// What stands behind each part of a layer: the sum of its input and its output, of which some may be dropped, and the
// layer norm of that: s = x + dropout(y), n = weight * (s - mean) * factor + bias, factor = 1 / sqrt(variance +
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

}  // namespace mh::kernels
