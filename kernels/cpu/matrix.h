// Views of matrices.
#pragma once

#include <cstdint>

namespace mh::kernels {

// Rows are contiguous, row r at data + r * stride.
template <class T>
struct Matrix {
  T* data;
  int64_t stride;
};

// Element (i, j) at data[i * row_stride + j * column_stride]: a matrix or its transpose.
struct StridedMatrix {
  const float* data;
  int64_t row_stride, column_stride;
};

}  // namespace mh::kernels
