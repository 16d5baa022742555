// Packed operands of bf16 products (cpu/bf16_gemm.h). Row sizes are padded with zeros to a multiple of 16. A left
// operand is row-major. A right operand consists of consecutive panels of 64 columns, or fewer in the last panel; each
// panel has all rows, interleaved in pairs (Bf16GemmSizes).
#pragma once

#include <algorithm>

#include "cpu/attention_row.h"
#include "cpu/bf16_gemm.h"
#include "cpu/matrix.h"

namespace mh::kernels {

constexpr int64_t kGemmColumns = 64;  // columns of a panel of a right operand

// Loads the first `count` elements, at most 16, into the lower halves of 32-bit words; the other words become zero.
MH_INLINE void load_words(const uint16_t* from, int64_t count, Words& to) {
  HalfWords h;
  if (count >= lanes) {
    load_vector(from, h);
  } else {
    uint16_t elements[lanes] = {};
    std::memcpy(elements, from, static_cast<size_t>(count) * sizeof(uint16_t));
    load_vector(elements, h);
  }
  convert(h, to);
}

// Copies `from` (rows, size), with row r at `from + r * row_stride`, to a left operand `to` (padded_rows, padded size),
// whose other elements become zero.
MH_INLINE void copy_rows(const uint16_t* from, int64_t row_stride, int64_t rows, int64_t padded_rows, int64_t size,
                         uint16_t* to) {
  const int64_t padded_size = pad_to_lanes(size);
  std::fill_n(to, padded_rows * padded_size, uint16_t{0});
  for (int64_t r = 0; r < rows; ++r)
    std::memcpy(to + r * padded_size, from + r * row_stride, static_cast<size_t>(size) * sizeof(uint16_t));
}

// Copies `from` (rows, size), with row r at `from + r * row_stride`, to a right operand `to` (padded_rows, padded
// size), whose other elements become zero. `padded_rows` is even.
MH_INLINE void interleave_rows(const uint16_t* from, int64_t row_stride, int64_t rows, int64_t padded_rows,
                               int64_t size, uint16_t* to) {
  const int64_t padded_size = pad_to_lanes(size);
  for (int64_t r = 0; r < padded_rows; r += 2)
    for (int64_t i = 0; i < padded_size; i += lanes) {
      Words low{}, high{};
      if (r < rows) load_words(from + r * row_stride + i, size - i, low);
      if (r + 1 < rows) load_words(from + (r + 1) * row_stride + i, size - i, high);
      low |= high << 16;
      const int64_t first = i / kGemmColumns * kGemmColumns, columns = std::min(kGemmColumns, padded_size - first);
      store_vector(low, to + first * padded_rows + r * columns + 2 * (i - first));
    }
}

// Transposes `from` (rows, size), with row r at `from + r * row_stride`, to a right operand `to` (padded size,
// padded_rows), whose other elements become zero. `padded_rows` is a multiple of 64.
MH_INLINE void transpose_rows(const uint16_t* from, int64_t row_stride, int64_t rows, int64_t padded_rows, int64_t size,
                              uint16_t* to) {
  const int64_t padded_size = pad_to_lanes(size);
  std::fill_n(to, padded_rows * padded_size, uint16_t{0});
  for (int64_t r = 0; r < rows; ++r) {
    uint16_t* column = to + r / kGemmColumns * kGemmColumns * padded_size + 2 * (r % kGemmColumns);
    for (int64_t i = 0; i < size; i += 2)
      std::memcpy(column + i * kGemmColumns, from + r * row_stride + i,
                  static_cast<size_t>(std::min<int64_t>(2, size - i)) * sizeof(uint16_t));
  }
}

// A right operand of `rows` rows, of which products read the rows from row `first` on.
struct RightOperand {
  const uint16_t* data;
  int64_t rows, first = 0;
};

// Computes c (m, n) = a (m, k) b (k, n), or c += a b if `add`. b: rows b.first … b.first + k - 1 of a right operand of
// n columns.
template <bool add>
MH_INLINE void gemm_product(const Bf16Gemm& gemm, int64_t m, int64_t n, int64_t k, Matrix<const uint16_t> a,
                            const RightOperand& b, Matrix<float> c) {
  for (int64_t x = 0; x < n; x += kGemmColumns) {
    const int64_t columns = std::min(kGemmColumns, n - x);
    gemm.product({m, columns, k, a.row_stride, columns, c.row_stride, add}, a.data,
                 b.data + x * b.rows + b.first * columns, c.data + x);
  }
}

// Rounds columns j … j + 15 of row i of an fp32 tile to bf16, in the lower halves of 32-bit words; columns from
// visible_end(i) on, of masked keys, become zero. Row i is at `tile + i * row_stride`. VisibleEnd is callable as
// int64_t(int64_t).
template <class VisibleEnd>
MH_INLINE void round_lanes(const float* tile, int64_t row_stride, const VisibleEnd& visible_end, int64_t i, int64_t j,
                           Words& to) {
  to = Words{};
  if (j >= visible_end(i)) return;
  Floats v;
  load(tile + i * row_stride + j, v);
  replace_tail(visible_end(i) - j, 0, v);
  to_bf16(v, to);
}

// Rounds 64 columns of an fp32 tile to a left operand `to` (rows, 64). Row i is at `tile + i * row_stride`; its columns
// from visible_end(i) on become zero.
template <class VisibleEnd>
MH_INLINE void round_tile(const float* tile, int64_t row_stride, int64_t rows, const VisibleEnd& visible_end,
                          uint16_t* to) {
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < kGemmColumns; j += lanes) {
      Words w;
      round_lanes(tile, row_stride, visible_end, i, j, w);
      HalfWords h;
      convert(w, h);
      store_vector(h, to + i * kGemmColumns + j);
    }
}

// Rounds 64 columns of an fp32 tile, transposed, to a left operand `to` (64, rows). Row i of the tile is at
// `tile + i * row_stride`; its columns from visible_end(i) on become zero. `rows` is even.
template <class VisibleEnd>
MH_INLINE void transpose_tile(const float* tile, int64_t row_stride, int64_t rows, const VisibleEnd& visible_end,
                              uint16_t* to) {
  for (int64_t j = 0; j < kGemmColumns; j += lanes)
    for (int64_t first = 0; first < rows; first += 2 * lanes) {
      Floats pairs[lanes];
      const int64_t count = std::min<int64_t>(2 * lanes, rows - first);
      for (int64_t i = 0; i < 2 * lanes; i += 2) {
        Words low{}, high{};
        if (i < count)
          round_lanes(tile, row_stride, visible_end, first + i, j, low),
              round_lanes(tile, row_stride, visible_end, first + i + 1, j, high);
        low |= high << 16;
        copy_bits(low, pairs[i / 2]);
      }
      transpose(pairs);
      for (int64_t x = 0; x < lanes; ++x) {
        uint16_t* row = to + (j + x) * rows + first;
        if (count == 2 * lanes) {
          store_vector(pairs[x], row);
        } else {
          uint16_t elements[2 * lanes];
          store_vector(pairs[x], elements);
          std::memcpy(row, elements, static_cast<size_t>(count) * sizeof(uint16_t));
        }
      }
    }
}

// An fp32 tile of m queries and the keys key_begin … key_end - 1, as an operand of bf16 products. The elements for keys
// s … s + 63 begin at address tile_address(s), with a row stride of `row_stride` floats. Row i counts as zero for keys
// from visible_end(i) on. Products take 64 keys at a time, also past key_end - 1, so visible_end(i) must exclude all
// keys for which row i has no elements. `bf16_tile`: scratch of 64 m elements.
template <class TileAddress, class VisibleEnd>
struct GemmTile {
  const Bf16Gemm& gemm;
  int64_t m, key_begin, key_end, row_stride;
  TileAddress tile_address;
  VisibleEnd visible_end;
  uint16_t* bf16_tile;

  // Computes `sums` (m, padded_size) += tile (m, keys) · `right` (keys, padded_size), where `right` is a right operand
  // of `rows` rows, one for each key from key 0 on.
  MH_INLINE void add_product(const uint16_t* right, int64_t rows, int64_t padded_size, float* sums) const {
    for (int64_t s = key_begin; s < key_end; s += kGemmColumns) {
      round_tile(
          tile_address(s), row_stride, m, [&](int64_t i) { return visible_end(i) - s; }, bf16_tile);
      gemm_product<true>(gemm, m, padded_size, kGemmColumns, {bf16_tile, kGemmColumns}, {right, rows, s},
                         {sums, padded_size});
    }
  }
  // Computes `to` (keys, padded_size) += tileᵀ (keys, m) · `right` (m, padded_size), where `right` is a right operand
  // of m rows, and `to` has a row for each key from key 0 on.
  MH_INLINE void add_transposed_product(const uint16_t* right, int64_t padded_size, float* to) const {
    for (int64_t s = key_begin; s < key_end; s += kGemmColumns) {
      transpose_tile(
          tile_address(s), row_stride, m, [&](int64_t i) { return visible_end(i) - s; }, bf16_tile);
      gemm_product<true>(gemm, kGemmColumns, padded_size, m, {bf16_tile, m}, {right, m},
                         {to + s * padded_size, padded_size});
    }
  }
};
template <class TileAddress, class VisibleEnd>
GemmTile(const Bf16Gemm&, int64_t, int64_t, int64_t, int64_t, TileAddress, VisibleEnd, uint16_t*)
    -> GemmTile<TileAddress, VisibleEnd>;

// Multiplies x (rows, columns), with row stride ld, by `factor` in place.
MH_INLINE void scale_rows(float factor, int64_t rows, int64_t columns, float* x, int64_t ld) {
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < columns; j += lanes) {
      Floats v;
      load(x + i * ld + j, v);
      v = v * factor;
      store(v, x + i * ld + j);
    }
}

}  // namespace mh::kernels
