// The products of plain attention, of a block of queries with the keys and values of one head: in fp32 by register
// tiles, or in bf16 by Bf16Gemm. Both pack their operands; results are fp32.
//
// A tile is (block, row): its rows are contiguous, with a stride of `row` floats; its first column belongs to key
// Block::low, the last one written to key width - 1.
#pragma once

#include <algorithm>

#include "cpu/attention.h"
#include "cpu/attention_row.h"
#include "cpu/bf16_operands.h"
#include "cpu/products.h"

namespace mh::kernels {

constexpr int64_t kBlock = 32;  // queries of a block

// A span of keys: begin to end - 1.
struct Span {
  int64_t begin, end;
};

// The queries of a block, and the keys of a span that they see.
struct Block {
  int64_t first, m, rows;  // first query, number of queries, and rows padded to the register tile
  int64_t low, width;      // keys from low to width - 1, multiples of `grain`; none if width <= low
  MH_INLINE Block(const AttentionParams& params, int64_t begin, const Span& span, int64_t fill, int64_t grain)
      : first(begin),
        m(std::min(kBlock, params.queries - begin)),
        rows((m + fill - 1) / fill * fill),
        low(std::max(span.begin, params.visible_begin(begin) / grain * grain)),
        width(std::min(span.end, (params.visible_end(begin + m - 1) + grain - 1) / grain * grain)) {}
  MH_INLINE int64_t keys() const { return width - low; }
};

// Computes to (rows, size) = factor * from; rows up to `filled` are zero.
template <class T>
MH_INLINE void unpack(Matrix<const T> from, int64_t rows, int64_t filled, int64_t size, float factor, float* to) {
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t i = 0; i < size; i += lanes) {
      Floats v;
      load(from.data + r * from.stride + i, v);
      v = v * factor;
      store(v, to + r * size + i);
    }
  std::fill_n(to + rows * size, (filled - rows) * size, 0.0F);
}

// Allocates consecutive parts of a scratch memory.
struct Parts {
  float* at;
  MH_INLINE float* take(int64_t floats) {
    float* const part = at;
    at += floats;
    return part;
  }
};

template <class Tile, class T>
class Fp32Products {
 public:
  static MH_INLINE int64_t keys(const AttentionParams& params) { return padded(params.keys); }
  static MH_INLINE int64_t floats(const AttentionParams& params, bool backward) {
    return ((backward ? 3 : 2) * keys(params) + (backward ? 2 : 1) * kBlock) * params.key_size;
  }
  static MH_INLINE Block block_at(const AttentionParams& params, int64_t first, const Span& span) {
    return {params, first, span, lanes, lanes};
  }

  MH_INLINE Fp32Products(const AttentionParams& params, bool backward, int64_t row, Matrix<const T> k,
                         Matrix<const T> v, Parts& parts)
      : d_(params.key_size), keys_(keys(params)), row_(row), scale_(params.scale) {
    plain_ = parts.take(keys_ * d_), transposed_k_ = parts.take(keys_ * d_), rows_ = parts.take(kBlock * d_);
    if (backward) {
      transposed_v_ = parts.take(keys_ * d_), given_ = parts.take(kBlock * d_);
      unpack(v, params.keys, keys_, d_, 1.0F, plain_);
      transpose_keys(plain_, transposed_v_);
    }
    unpack(k, params.keys, keys_, d_, 1.0F, plain_);
    transpose_keys(plain_, transposed_k_);
    if (!backward) unpack(v, params.keys, keys_, d_, 1.0F, plain_);
  }

  MH_INLINE void take_queries(const Block& b, Matrix<const T> q) {
    unpack(Matrix<const T>{q.data + b.first * q.stride, q.stride}, b.m, b.rows, d_, scale_, rows_);
  }
  MH_INLINE void take_given(const Block& b, Matrix<const T> dout) {
    unpack(Matrix<const T>{dout.data + b.first * dout.stride, dout.stride}, b.m, b.rows, d_, 1.0F, given_);
  }
  // Returns the scaled queries of the block (rows, size), to which a bias may be added.
  MH_INLINE float* queries() { return rows_; }
  // to_keys() uses scaled queries, so its result needs no scaling.
  static constexpr bool scales_queries = true;

  MH_INLINE void logits(const Block& b, float* s) const {
    product<Tile, false>(b.rows, b.keys(), d_, {rows_, d_, 1}, {transposed_k_ + b.low, keys_}, {s, row_});
  }
  // Computes sums (block, size) += p V.
  MH_INLINE void weigh_values(const Block& b, const float* p, float* sums) const { over_keys(b, p, sums); }
  // Computes dp = dO Vᵀ.
  MH_INLINE void with_values(const Block& b, float* dp) const {
    product<Tile, false>(b.rows, b.keys(), d_, {given_, d_, 1}, {transposed_v_ + b.low, keys_}, {dp, row_});
  }
  // Computes sums (block, size) += dS K.
  MH_INLINE void to_queries(const Block& b, const float* ds, float* sums) const { over_keys(b, ds, sums); }
  // Computes dk (keys, size) += dSᵀ Q and dv += Pᵀ dO.
  MH_INLINE void to_keys(const Block& b, const float* ds, float* dk) const { over_queries(b, ds, rows_, dk); }
  MH_INLINE void to_values(const Block& b, const float* p, float* dv) const { over_queries(b, p, given_, dv); }

 private:
  // Computes to (size, keys) = from (keys, size) transposed.
  MH_INLINE void transpose_keys(const float* from, float* to) const {
    for (int64_t r = 0; r < keys_; r += lanes)
      for (int64_t i = 0; i < d_; i += lanes) {
        Floats rows[lanes];
        for (int64_t j = 0; j < lanes; ++j) load(from + (r + j) * d_ + i, rows[j]);
        transpose(rows);
        for (int64_t j = 0; j < lanes; ++j) store(rows[j], to + (i + j) * keys_ + r);
      }
  }
  MH_INLINE void over_keys(const Block& b, const float* tile, float* sums) const {
    product<Tile, true>(b.rows, d_, b.keys(), {tile, row_, 1}, {plain_ + b.low * d_, d_}, {sums, d_});
  }
  MH_INLINE void over_queries(const Block& b, const float* tile, const float* rows, float* to) const {
    product<Tile, true>(b.keys(), d_, b.rows, {tile, 1, row_}, {rows, d_}, {to + b.low * d_, d_});
  }

  int64_t d_, keys_, row_;
  float scale_;
  float *plain_, *transposed_k_,
      *transposed_v_ = nullptr;     // keys, or forward values (keys, size); keys and values transposed
  float *rows_, *given_ = nullptr;  // rows of the block (block, size)
};

// Uses few shapes, since Bf16Gemm may generate code for each: 64 keys at a time, and whole blocks.
class Bf16Products {
  static constexpr int64_t grain = kGemmColumns;  // keys at a time

  // Rows after the last query are not read.
  MH_INLINE auto gemm_tile(const Block& b, const float* tile) const {
    return GemmTile{gemm_,
                    kBlock,
                    b.low,
                    b.width,
                    row_,
                    [tile, &b](int64_t s) { return tile + s - b.low; },
                    [&b](int64_t i) { return i < b.m ? b.width : 0; },
                    rounded_};
  }

 public:
  static MH_INLINE int64_t keys(const AttentionParams& params) { return (params.keys + grain - 1) / grain * grain; }
  static MH_INLINE int64_t floats(const AttentionParams& params, bool backward) {
    const int64_t n = keys(params), d = params.key_size;
    return ((backward ? 3 : 2) * n * d + (backward ? 4 : 1) * kBlock * d + grain * kBlock) / 2;
  }
  static MH_INLINE Block block_at(const AttentionParams& params, int64_t first, const Span& span) {
    return {params, first, span, 1, grain};
  }

  MH_INLINE Bf16Products(const AttentionParams& params, bool backward, int64_t row, Matrix<const uint16_t> k,
                         Matrix<const uint16_t> v, Parts& parts)
      : gemm_(*params.bf16), d_(params.key_size), keys_(keys(params)), row_(row), scale_(params.scale) {
    const auto take = [&](int64_t numbers) { return reinterpret_cast<uint16_t*>(parts.take(numbers / 2)); };
    transposed_k_ = take(keys_ * d_), pairs_ = take(keys_ * d_);
    rows_ = take(kBlock * d_), rounded_ = take(grain * kBlock);
    transpose_rows(k.data, k.stride, params.keys, keys_, d_, transposed_k_);
    const Matrix<const uint16_t> paired = backward ? k : v;
    pair_rows(paired.data, paired.stride, params.keys, keys_, d_, pairs_);
    if (!backward) return;
    transposed_v_ = take(keys_ * d_);
    transpose_rows(v.data, v.stride, params.keys, keys_, d_, transposed_v_);
    paired_rows_ = take(kBlock * d_), given_ = take(kBlock * d_), paired_given_ = take(kBlock * d_);
  }

  MH_INLINE void take_queries(const Block& b, Matrix<const uint16_t> q) {
    take_rows(b, q, rows_);
    if (paired_rows_ != nullptr) pair_rows(rows_, d_, kBlock, kBlock, d_, paired_rows_);
  }
  MH_INLINE void take_given(const Block& b, Matrix<const uint16_t> dout) {
    take_rows(b, dout, given_);
    pair_rows(given_, d_, kBlock, kBlock, d_, paired_given_);
  }
  MH_INLINE float* queries() { return nullptr; }  // there are none in fp32
  static constexpr bool scales_queries = false;   // which would round them

  MH_INLINE void logits(const Block& b, float* s) const {
    with_transposed(b, rows_, transposed_k_, s);
    scale_rows(scale_, b.m, b.keys(), s, row_);
  }
  MH_INLINE void weigh_values(const Block& b, const float* p, float* sums) const {
    gemm_tile(b, p).over_keys(pairs_, keys_, d_, sums);
  }
  MH_INLINE void with_values(const Block& b, float* dp) const { with_transposed(b, given_, transposed_v_, dp); }
  MH_INLINE void to_queries(const Block& b, const float* ds, float* sums) const {
    gemm_tile(b, ds).over_keys(pairs_, keys_, d_, sums);
  }
  MH_INLINE void to_keys(const Block& b, const float* ds, float* dk) const {
    gemm_tile(b, ds).over_queries(paired_rows_, d_, dk);
  }
  MH_INLINE void to_values(const Block& b, const float* p, float* dv) const {
    gemm_tile(b, p).over_queries(paired_given_, d_, dv);
  }

 private:
  MH_INLINE void take_rows(const Block& b, Matrix<const uint16_t> from, uint16_t* to) const {
    copy_rows(from.data + b.first * from.stride, from.stride, b.m, kBlock, d_, to);
  }
  MH_INLINE void with_transposed(const Block& b, const uint16_t* rows, const uint16_t* transposed, float* tile) const {
    gemm_product<false>(gemm_, kBlock, b.keys(), d_, {rows, d_}, {transposed + b.low * d_, d_}, {tile, row_});
  }
  const Bf16Gemm& gemm_;
  int64_t d_, keys_, row_;
  float scale_;
  uint16_t *transposed_k_, *transposed_v_ = nullptr, *pairs_;  // pairs_: keys, or forward values
  uint16_t *rows_, *paired_rows_ = nullptr, *given_ = nullptr, *paired_given_ = nullptr;  // rows of the block
  uint16_t* rounded_;                                                                     // scratch: 64 keys of a tile
};

}  // namespace mh::kernels
