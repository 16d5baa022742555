// Linear maps across heads for a chunk of kMixWidth elements of every head, with all heads adjacent: the inner loops of
// head_mix.h and head_mixing_attention.h. The chunks of 8 heads of x and 8 heads of y take 8 KiB in total.
#pragma once

#include "cpu/head_mix.h"
#include "cpu/matrix.h"
#include "cpu/vector.h"

namespace mh::kernels {

// Computes y_i = Σ_j m[i, j] x_j for `rows` heads i of y and the first `count` elements; `count` is rounded up to a
// multiple of 16.
template <int rows>
MH_INLINE void mix_rows(int64_t num_in_heads, StridedMatrix m, const float* x, int64_t count, float* y) {
  for (int64_t s = 0; s < count; s += lanes) {
    Floats sum[rows];
    for (int r = 0; r < rows; ++r) sum[r] = Floats{};
    for (int64_t j = 0; j < num_in_heads; ++j) {
      Floats v;
      load(x + j * kMixWidth + s, v);
      for (int r = 0; r < rows; ++r) sum[r] += m.data[j * m.column_stride + r * m.row_stride] * v;
    }
    for (int r = 0; r < rows; ++r) store(sum[r], y + r * kMixWidth + s);
  }
}

// Computes y (num_out_heads, kMixWidth) = m (num_out_heads, num_in_heads) x (num_in_heads, kMixWidth) in the first
// `count` columns; `count` is rounded up to a multiple of 16.
MH_INLINE void mix_chunk(int64_t num_in_heads, int64_t num_out_heads, StridedMatrix m, const float* x, int64_t count,
                         float* y) {
  const auto matrix_rows = [&](int64_t i) {
    return StridedMatrix{m.data + i * m.row_stride, m.row_stride, m.column_stride};
  };
  int64_t i = 0;
  for (; i + 4 <= num_out_heads; i += 4) mix_rows<4>(num_in_heads, matrix_rows(i), x, count, y + i * kMixWidth);
  for (; i < num_out_heads; ++i) mix_rows<1>(num_in_heads, matrix_rows(i), x, count, y + i * kMixWidth);
}

// Computes dm[j][i][l] += Σ x_j[s] dy_i[s] over the elements s < count with s % 16 = l, for `rows` heads j of x and
// `columns` heads i of dy. `count` is rounded up to a multiple of 16.
template <int rows, int columns>
MH_INLINE void outer_product_rows(const float* x, const float* dy, int64_t count, float* dm, int64_t num_out_heads) {
  Floats sum[rows][columns];
  for (int r = 0; r < rows; ++r)
    for (int c = 0; c < columns; ++c) load(dm + (r * num_out_heads + c) * lanes, sum[r][c]);
  for (int64_t s = 0; s < count; s += lanes) {
    Floats right[columns];
    for (int c = 0; c < columns; ++c) load(dy + c * kMixWidth + s, right[c]);
    for (int r = 0; r < rows; ++r) {
      Floats left;
      load(x + r * kMixWidth + s, left);
      for (int c = 0; c < columns; ++c) sum[r][c] += left * right[c];
    }
  }
  for (int r = 0; r < rows; ++r)
    for (int c = 0; c < columns; ++c) store(sum[r][c], dm + (r * num_out_heads + c) * lanes);
}

// Computes dm[j][i][l] += Σ x_j[s] dy_i[s] over the elements s < count with s % 16 = l, for all heads j of x and all
// heads i of dy: dm (num_in_heads, num_out_heads, 16). `count` is rounded up to a multiple of 16.
MH_INLINE void outer_product_chunk(int64_t num_in_heads, int64_t num_out_heads, const float* x, const float* dy,
                                   int64_t count, float* dm) {
  constexpr int rows = kRegisterBytes == 64 ? 4 : 2;  // the sums of `rows` rows and two columns fit in the registers
  int64_t j = 0;
  for (; j + rows <= num_in_heads; j += rows) {
    int64_t i = 0;
    for (; i + 2 <= num_out_heads; i += 2)
      outer_product_rows<rows, 2>(x + j * kMixWidth, dy + i * kMixWidth, count, dm + (j * num_out_heads + i) * lanes,
                                  num_out_heads);
    for (; i < num_out_heads; ++i)
      outer_product_rows<rows, 1>(x + j * kMixWidth, dy + i * kMixWidth, count, dm + (j * num_out_heads + i) * lanes,
                                  num_out_heads);
  }
  for (; j < num_in_heads; ++j)
    for (int64_t i = 0; i < num_out_heads; ++i)
      outer_product_rows<1, 1>(x + j * kMixWidth, dy + i * kMixWidth, count, dm + (j * num_out_heads + i) * lanes,
                               num_out_heads);
}

}  // namespace mh::kernels
