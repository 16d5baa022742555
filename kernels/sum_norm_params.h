// Residual sum and norm at the end of a sublayer with residual x and output y:
//   s = x + dropout(y)
//   layer norm:  n = weight * (s - mean) * rstd + bias,   rstd = 1 / sqrt(variance + epsilon)
//   RMS norm:    n = weight * s * rstd,                   rstd = 1 / sqrt(mean(s²) + epsilon)
#pragma once

#include <cstdint>

#include "dropout_params.h"

namespace mh::kernels {

// The kinds of norms over the last axis: layer norm (Ba et al. 2016), RMS norm (Zhang & Sennrich 2019).
enum class NormType : uint8_t { layer, rms };

struct SumNormParams {
  int64_t size = 0;                                // number of elements of a row
  const float *weight = nullptr, *bias = nullptr;  // (size); null `bias`: no bias, as in every RMS norm
  float epsilon = 0;
  NormType type = NormType::layer;
  // Dropout of y; null: none. A batch row has `batch_row_size` rows. Element i of row t of batch row b is element
  // dropout_offset + b * dropout_batch_stride + t * size + i of the random stream.
  const DropoutParams* dropout = nullptr;
  uint64_t dropout_offset = 0;
  int64_t dropout_batch_stride = 0, batch_row_size = 1;

  // Returns the index in the random stream of the first element of row r, where r counts the rows of all batch rows.
  constexpr uint64_t dropout_begin(int64_t r) const {
    return dropout_offset +
           static_cast<uint64_t>(r / batch_row_size * dropout_batch_stride + r % batch_row_size * size);
  }
};

// Tensors of shape (rows, size), except mean and rstd, (rows), and dweight and dbias, (chunks, size). The element type
// of y and dy is an argument of each function; all other tensors are fp32.
struct SumNormTensors {
  int64_t rows = 0;
  const float* x = nullptr;
  const void* y = nullptr;
  float *sum = nullptr, *norm = nullptr;   // s and n; null `sum`: s is not stored; null `norm`: no norm
  float *mean = nullptr, *rstd = nullptr;  // null: not stored; an RMS norm has no `mean`
  // Gradients with respect to `sum` and `norm`; null: zero. The backward pass reads `sum`, `rstd` and, of a layer norm,
  // `mean` if `dnorm` is not null.
  const float *dsum = nullptr, *dnorm = nullptr;
  float* dx = nullptr;
  void* dy = nullptr;  // on a GPU, may be null in fp32 without dropout: dy then equals dx and is not stored
  // (chunks, size): gradients of weight and bias, summed over each chunk of `chunk_rows` rows. Null `dbias`: not
  // stored.
  float *dweight = nullptr, *dbias = nullptr;
  int64_t chunk_rows = 0;
};

}  // namespace mh::kernels
