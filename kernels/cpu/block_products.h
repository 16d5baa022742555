// The matrix products of attention without head mixing, between a block of queries and the keys and values of one head:
// Fp32Products with register tiles, Bf16Products with Bf16Gemm. Both classes have the same interface, pack their
// operands, and give fp32 results.
//
// A tile (block, row) has a row for each query of a block, with a row stride of `row` floats, and a column for each
// key: column 0 is key Block::low, and the last column in use is key Block::width - 1.
#pragma once

#include <algorithm>

#include "cpu/attention.h"
#include "cpu/attention_row.h"
#include "cpu/bf16_operands.h"
#include "cpu/products.h"

namespace mh::kernels {

constexpr int64_t kBlock = 32;  // maximum number of queries of a block

// The keys begin … end - 1.
struct Span {
  int64_t begin, end;
};

// A block of queries, and the keys of a span that at least one of them sees.
struct Block {
  int64_t first, m, rows;  // first query; number of queries; m rounded up to a multiple of `fill`
  int64_t low, width;      // keys low … width - 1; both are multiples of `grain`; no keys if width <= low
  MH_INLINE Block(const AttentionParams& params, int64_t begin, const Span& span, int64_t fill, int64_t grain)
      : first(begin),
        m(std::min(kBlock, params.queries - begin)),
        rows((m + fill - 1) / fill * fill),
        low(std::max(span.begin, params.visible_begin(begin) / grain * grain)),
        width(std::min(span.end, (params.visible_end(begin + m - 1) + grain - 1) / grain * grain)) {}
  MH_INLINE int64_t keys() const { return width - low; }
};

// Computes to (filled, size) = factor * from (rows, size) in fp32; the rows from `rows` on become zero.
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

// Allocates consecutive arrays from scratch memory: take() returns the address of the next `floats` floats.
struct ScratchAllocator {
  float* at;
  MH_INLINE float* take(int64_t floats) {
    float* const part = at;
    at += floats;
    return part;
  }
};

// Products in fp32. Tile: the register tile (cpu/products.h). T: type of the tensors.
template <class Tile, class T>
class Fp32Products {
 public:
  // Returns the number of keys, rounded up to what the products require.
  static MH_INLINE int64_t keys(const AttentionParams& params) { return padded(params.keys); }
  // Returns the number of floats that the packed operands take from the scratch memory.
  static MH_INLINE int64_t floats(const AttentionParams& params, bool backward) {
    return ((backward ? 3 : 2) * keys(params) + (backward ? 2 : 1) * kBlock) * params.key_size;
  }
  // Returns the block of queries from query `first` on, and the keys of `span` that it sees.
  static MH_INLINE Block block_at(const AttentionParams& params, int64_t first, const Span& span) {
    return {params, first, span, lanes, lanes};
  }

  // Packs keys and values into scratch memory. row: row stride of the tiles.
  MH_INLINE Fp32Products(const AttentionParams& params, bool backward, int64_t row, Matrix<const T> k,
                         Matrix<const T> v, ScratchAllocator& allocator)
      : d_(params.key_size), keys_(keys(params)), row_(row), scale_(params.scale) {
    plain_ = allocator.take(keys_ * d_), transposed_k_ = allocator.take(keys_ * d_),
    rows_ = allocator.take(kBlock * d_);
    if (backward) {
      transposed_v_ = allocator.take(keys_ * d_), packed_dout_ = allocator.take(kBlock * d_);
      unpack(v, params.keys, keys_, d_, 1.0F, plain_);
      transpose_keys(plain_, transposed_v_);
    }
    unpack(k, params.keys, keys_, d_, 1.0F, plain_);
    transpose_keys(plain_, transposed_k_);
    if (!backward) unpack(v, params.keys, keys_, d_, 1.0F, plain_);
  }

  // Packs the queries of a block, scaled by params.scale.
  MH_INLINE void take_queries(const Block& b, Matrix<const T> q) {
    unpack(Matrix<const T>{q.data + b.first * q.stride, q.stride}, b.m, b.rows, d_, scale_, rows_);
  }
  // Packs the output gradient dO of a block.
  MH_INLINE void pack_dout(const Block& b, Matrix<const T> dout) {
    unpack(Matrix<const T>{dout.data + b.first * dout.stride, dout.stride}, b.m, b.rows, d_, 1.0F, packed_dout_);
  }
  // Returns the scaled queries of the block (rows, size), to which the caller may add a bias.
  MH_INLINE float* queries() { return rows_; }
  // Whether the packed queries are scaled. If they are, the dk of accumulate_dk() is complete; otherwise the caller
  // multiplies it by params.scale.
  static constexpr bool scales_queries = true;

  // Computes the logits s (block, row) = scale * Q Kᵀ.
  MH_INLINE void logits(const Block& b, float* s) const {
    product<Tile, false>(b.rows, b.keys(), d_, {rows_, d_, 1}, {transposed_k_ + b.low, keys_}, {s, row_});
  }
  // Computes sums (block, size) += P V.
  MH_INLINE void accumulate_out(const Block& b, const float* p, float* sums) const { over_keys(b, p, sums); }
  // Computes dp (block, row) = dO Vᵀ.
  MH_INLINE void compute_dp(const Block& b, float* dp) const {
    product<Tile, false>(b.rows, b.keys(), d_, {packed_dout_, d_, 1}, {transposed_v_ + b.low, keys_}, {dp, row_});
  }
  // Computes sums (block, size) += dS K.
  MH_INLINE void accumulate_dq(const Block& b, const float* ds, float* sums) const { over_keys(b, ds, sums); }
  // Compute dk (keys, size) += dSᵀ Q, and dv (keys, size) += Pᵀ dO.
  MH_INLINE void accumulate_dk(const Block& b, const float* ds, float* dk) const { over_queries(b, ds, rows_, dk); }
  MH_INLINE void accumulate_dv(const Block& b, const float* p, float* dv) const {
    over_queries(b, p, packed_dout_, dv);
  }

 private:
  // Computes to (size, keys) = fromᵀ, for `from` (keys, size).
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
  // plain_ (keys, size): values in the forward pass, keys in the backward pass. Transposed (size, keys): keys, and in
  // the backward pass values.
  float *plain_, *transposed_k_, *transposed_v_ = nullptr;
  float *rows_, *packed_dout_ = nullptr;  // scaled queries, and dO in the backward pass (block, size)
};

// Products in bf16, with the interface of Fp32Products. They have few shapes, 64 keys and whole blocks of kBlock
// queries, since Bf16Gemm may generate code for each shape.
class Bf16Products {
  static constexpr int64_t grain = kGemmColumns;  // keys of a product

  // Returns a tile as an operand; its rows past the last query count as zero.
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
                         Matrix<const uint16_t> v, ScratchAllocator& allocator)
      : gemm_(*params.bf16), d_(params.key_size), keys_(keys(params)), row_(row), scale_(params.scale) {
    const auto take = [&](int64_t numbers) { return reinterpret_cast<uint16_t*>(allocator.take(numbers / 2)); };
    transposed_k_ = take(keys_ * d_), pairs_ = take(keys_ * d_);
    rows_ = take(kBlock * d_), rounded_ = take(grain * kBlock);
    transpose_rows(k.data, k.stride, params.keys, keys_, d_, transposed_k_);
    const Matrix<const uint16_t> paired = backward ? k : v;
    pair_rows(paired.data, paired.stride, params.keys, keys_, d_, pairs_);
    if (!backward) return;
    transposed_v_ = take(keys_ * d_);
    transpose_rows(v.data, v.stride, params.keys, keys_, d_, transposed_v_);
    paired_rows_ = take(kBlock * d_), packed_dout_ = take(kBlock * d_), paired_dout_ = take(kBlock * d_);
  }

  MH_INLINE void take_queries(const Block& b, Matrix<const uint16_t> q) {
    take_rows(b, q, rows_);
    if (paired_rows_ != nullptr) pair_rows(rows_, d_, kBlock, kBlock, d_, paired_rows_);
  }
  MH_INLINE void pack_dout(const Block& b, Matrix<const uint16_t> dout) {
    take_rows(b, dout, packed_dout_);
    pair_rows(packed_dout_, d_, kBlock, kBlock, d_, paired_dout_);
  }
  MH_INLINE float* queries() { return nullptr; }  // queries are bf16; a bias cannot be added
  static constexpr bool scales_queries = false;   // scaling would round the bf16 queries

  MH_INLINE void logits(const Block& b, float* s) const {
    with_transposed(b, rows_, transposed_k_, s);
    scale_rows(scale_, b.m, b.keys(), s, row_);
  }
  MH_INLINE void accumulate_out(const Block& b, const float* p, float* sums) const {
    gemm_tile(b, p).over_keys(pairs_, keys_, d_, sums);
  }
  MH_INLINE void compute_dp(const Block& b, float* dp) const { with_transposed(b, packed_dout_, transposed_v_, dp); }
  MH_INLINE void accumulate_dq(const Block& b, const float* ds, float* sums) const {
    gemm_tile(b, ds).over_keys(pairs_, keys_, d_, sums);
  }
  MH_INLINE void accumulate_dk(const Block& b, const float* ds, float* dk) const {
    gemm_tile(b, ds).over_queries(paired_rows_, d_, dk);
  }
  MH_INLINE void accumulate_dv(const Block& b, const float* p, float* dv) const {
    gemm_tile(b, p).over_queries(paired_dout_, d_, dv);
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
  // Right operands: keys transposed, and in the backward pass values transposed; pairs_: values in the forward pass,
  // keys in the backward pass.
  uint16_t *transposed_k_, *transposed_v_ = nullptr, *pairs_;
  // rows_: queries; packed_dout_: dO in the backward pass; both left operands (block, size). paired_rows_ and
  // paired_dout_: the same rows as right operands, in the backward pass.
  uint16_t *rows_, *paired_rows_ = nullptr, *packed_dout_ = nullptr, *paired_dout_ = nullptr;
  uint16_t* rounded_;  // scratch of GemmTile (block, 64)
};

}  // namespace mh::kernels
