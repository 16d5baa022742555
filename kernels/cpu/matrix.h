// Views of matrices, without ownership.
#pragma once

#include <cstdint>

namespace mh::kernels {

// A row-major matrix: row r is contiguous and starts at data + r * row_stride.
template <class T>
struct Matrix {
  T* data;
  int64_t row_stride;
};

// A matrix or a transposed matrix: element (i, j) is at data[i * row_stride + j * column_stride].
struct StridedMatrix {
  const float* data;
  int64_t row_stride, column_stride;
};

}  // namespace mh::kernels
