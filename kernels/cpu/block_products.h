// The matrix products of attention without head mixing, between a block of queries and the keys and values of one head:
// Fp32Products with register tiles, Bf16Products with Bf16Gemm. Both classes have the same interface, pack their
// operands, and give fp32 results.
//
// A tile (block, row_stride) has a row of `row_stride` floats for each query of a block, and a column for each key:
// column 0 is key QueryBlock::key_begin, and the last column in use is key QueryBlock::key_end - 1.
#pragma once

#include <algorithm>

#include "ceil_div.h"
#include "cpu/attention.h"
#include "cpu/attention_row.h"
#include "cpu/bf16_operands.h"
#include "cpu/products.h"

namespace mh::kernels {

constexpr int64_t kBlockQueries = 32;  // maximum number of queries of a block

// The keys [begin, end).
struct KeySpan {
  int64_t begin, end;
};

// A block of queries, and the keys of a span that at least one query of the block sees.
struct QueryBlock {
  int64_t first, m, padded_m;  // first query; number of queries; m rounded up to a multiple of `row_multiple`
  // The keys key_begin … key_end - 1, rounded outwards to multiples of `key_multiple`; none if key_end <= key_begin.
  int64_t key_begin, key_end;
  MH_INLINE QueryBlock(const AttentionParams& params, int64_t begin, const KeySpan& span, int64_t row_multiple,
                       int64_t key_multiple)
      : first(begin),
        m(std::min(kBlockQueries, params.queries - begin)),
        padded_m(round_up(m, row_multiple)),
        key_begin(std::max(span.begin, params.visible_begin(begin) / key_multiple * key_multiple)),
        key_end(std::min(span.end, round_up(params.visible_end(begin + m - 1), key_multiple))) {}
  MH_INLINE int64_t num_keys() const { return key_end - key_begin; }
};

// Computes `to` (padded_rows, size) = `factor` * `from` (rows, size) in fp32; the rows from `rows` on become zero.
template <class T>
MH_INLINE void pack_fp32(Matrix<const T> from, int64_t rows, int64_t padded_rows, int64_t size, float factor,
                         float* to) {
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t i = 0; i < size; i += lanes) {
      Floats v;
      load(from.data + r * from.row_stride + i, v);
      v = v * factor;
      store(v, to + r * size + i);
    }
  std::fill_n(to + rows * size, (padded_rows - rows) * size, 0.0F);
}

// Allocates consecutive arrays from scratch memory: allocate() returns the address of the next `count` floats.
struct ScratchAllocator {
  float* next;
  MH_INLINE float* allocate(int64_t count) {
    float* const array = next;
    next += count;
    return array;
  }
};

// Products in fp32. RegisterTile: the register tile (cpu/products.h). T: type of the tensors.
template <class RegisterTile, class T>
class Fp32Products {
 public:
  // Returns the number of keys, rounded up to the multiple that the products require.
  static MH_INLINE int64_t padded_num_keys(const AttentionParams& params) { return pad_to_lanes(params.keys); }
  // Returns the number of floats that the packed operands take from the scratch memory.
  static MH_INLINE int64_t scratch_floats(const AttentionParams& params, bool backward) {
    const int64_t n = padded_num_keys(params), transposed = backward ? 2 : 1;
    return (n + transposed * transposed_stride(n) + (backward ? 2 : 1) * kBlockQueries) * params.key_size;
  }
  // Returns the block of queries from query `first` on, and the keys of `span` that the block sees.
  static MH_INLINE QueryBlock query_block_at(const AttentionParams& params, int64_t first, const KeySpan& span) {
    return {params, first, span, lanes, lanes};
  }

  // Packs keys and values into scratch memory. row_stride: row stride of the tiles.
  MH_INLINE Fp32Products(const AttentionParams& params, bool backward, int64_t row_stride, Matrix<const T> k,
                         Matrix<const T> v, ScratchAllocator& allocator)
      : d_(params.key_size), padded_keys_(padded_num_keys(params)), row_stride_(row_stride), scale_(params.scale) {
    const auto allocate_transposed = [&] { return allocator.allocate(transposed_stride(padded_keys_) * d_); };
    row_major_kv_ = allocator.allocate(padded_keys_ * d_), transposed_k_ = allocate_transposed(),
    packed_q_ = allocator.allocate(kBlockQueries * d_);
    if (backward) {
      transposed_v_ = allocate_transposed(), packed_dout_ = allocator.allocate(kBlockQueries * d_);
      pack_fp32(v, params.keys, padded_keys_, d_, 1.0F, row_major_kv_);
      transpose_keys(row_major_kv_, transposed_v_);
    }
    pack_fp32(k, params.keys, padded_keys_, d_, 1.0F, row_major_kv_);
    transpose_keys(row_major_kv_, transposed_k_);
    if (!backward) pack_fp32(v, params.keys, padded_keys_, d_, 1.0F, row_major_kv_);
  }

  // Packs the queries of a block, scaled by params.scale.
  MH_INLINE void pack_queries(const QueryBlock& block, Matrix<const T> q) {
    pack_fp32(Matrix<const T>{q.data + block.first * q.row_stride, q.row_stride}, block.m, block.padded_m, d_, scale_,
              packed_q_);
  }
  // Packs the output gradient dO of a block, which is not scaled.
  MH_INLINE void pack_dout(const QueryBlock& block, Matrix<const T> dout) {
    pack_fp32(Matrix<const T>{dout.data + block.first * dout.row_stride, dout.row_stride}, block.m, block.padded_m, d_,
              1.0F, packed_dout_);
  }
  // Returns the scaled queries of the block (padded_m, size), to which the caller may add a bias.
  MH_INLINE float* packed_queries() { return packed_q_; }
  // Whether pack_queries() scales the queries. If not, the caller multiplies the dk from accumulate_dk() by
  // params.scale.
  static constexpr bool kQueriesScaled = true;

  // Computes the logits s (block, row_stride) = scale * Q Kᵀ.
  MH_INLINE void compute_logits(const QueryBlock& block, float* s) const {
    matmul<RegisterTile, false>(block.padded_m, block.num_keys(), d_, {packed_q_, d_, 1},
                                transposed_keys(transposed_k_, block), {s, row_stride_});
  }
  // Computes `sums` (block, size) += P V.
  MH_INLINE void accumulate_out(const QueryBlock& block, const float* p, float* sums) const {
    add_product(block, p, sums);
  }
  // Computes dp (block, row_stride) = dO Vᵀ.
  MH_INLINE void compute_dp(const QueryBlock& block, float* dp) const {
    matmul<RegisterTile, false>(block.padded_m, block.num_keys(), d_, {packed_dout_, d_, 1},
                                transposed_keys(transposed_v_, block), {dp, row_stride_});
  }
  // Computes `sums` (block, size) += dS K.
  MH_INLINE void accumulate_dq(const QueryBlock& block, const float* ds, float* sums) const {
    add_product(block, ds, sums);
  }
  // Compute dk (keys, size) += dSᵀ Q and dv (keys, size) += Pᵀ dO. Q: the packed queries, which are scaled.
  MH_INLINE void accumulate_dk(const QueryBlock& block, const float* ds, float* dk) const {
    add_transposed_product(block, ds, packed_q_, dk);
  }
  MH_INLINE void accumulate_dv(const QueryBlock& block, const float* p, float* dv) const {
    add_transposed_product(block, p, packed_dout_, dv);
  }

 private:
  // Returns the row stride of transposed keys: an odd number of cache lines, so that the rows of the column panels that
  // products read spread over all sets of the cache.
  static MH_INLINE int64_t transposed_stride(int64_t padded_keys) { return (padded_keys / lanes | 1) * lanes; }
  MH_INLINE Matrix<const float> transposed_keys(const float* transposed, const QueryBlock& block) const {
    return {transposed + block.key_begin, transposed_stride(padded_keys_)};
  }
  // Computes `to` (size, keys) = fromᵀ, for `from` (keys, size).
  MH_INLINE void transpose_keys(const float* from, float* to) const {
    for (int64_t r = 0; r < padded_keys_; r += lanes)
      for (int64_t i = 0; i < d_; i += lanes) {
        Floats rows[lanes];
        for (int64_t j = 0; j < lanes; ++j) load(from + (r + j) * d_ + i, rows[j]);
        transpose(rows);
        for (int64_t j = 0; j < lanes; ++j) store(rows[j], to + (i + j) * transposed_stride(padded_keys_) + r);
      }
  }
  MH_INLINE void add_product(const QueryBlock& block, const float* tile, float* sums) const {
    matmul<RegisterTile, true>(block.padded_m, d_, block.num_keys(), {tile, row_stride_, 1},
                               {row_major_kv_ + block.key_begin * d_, d_}, {sums, d_});
  }
  MH_INLINE void add_transposed_product(const QueryBlock& block, const float* tile, const float* rows,
                                        float* to) const {
    matmul<RegisterTile, true>(block.num_keys(), d_, block.padded_m, {tile, 1, row_stride_}, {rows, d_},
                               {to + block.key_begin * d_, d_});
  }

  int64_t d_, padded_keys_, row_stride_;
  float scale_;
  // row_major_kv_ (keys, size): values in the forward pass, keys in the backward pass. transposed_k_ (size, keys),
  // with row stride transposed_stride(). transposed_v_, likewise: only in the backward pass.
  float *row_major_kv_, *transposed_k_, *transposed_v_ = nullptr;
  float *packed_q_, *packed_dout_ = nullptr;  // (block, size): scaled queries; dO, in the backward pass
};

// Products in bf16, with the interface of Fp32Products. Every product has 64 keys and kBlockQueries queries, since
// Bf16Gemm may generate code for each shape.
class Bf16Products {
  static constexpr int64_t kKeysPerProduct = kGemmColumns;

  // Returns a tile as an operand; its rows past the last query count as zero.
  MH_INLINE auto gemm_tile(const QueryBlock& block, const float* tile) const {
    return GemmTile{gemm_,
                    kBlockQueries,
                    block.key_begin,
                    block.key_end,
                    row_stride_,
                    [tile, &block](int64_t s) { return tile + s - block.key_begin; },
                    [&block](int64_t i) { return i < block.m ? block.key_end : 0; },
                    bf16_tile_};
  }

 public:
  static MH_INLINE int64_t padded_num_keys(const AttentionParams& params) {
    return round_up(params.keys, kKeysPerProduct);
  }
  static MH_INLINE int64_t scratch_floats(const AttentionParams& params, bool backward) {
    const int64_t n = padded_num_keys(params), d = params.key_size;
    return ((backward ? 3 : 2) * n * d + (backward ? 4 : 1) * kBlockQueries * d + kKeysPerProduct * kBlockQueries) / 2;
  }
  static MH_INLINE QueryBlock query_block_at(const AttentionParams& params, int64_t first, const KeySpan& span) {
    return {params, first, span, 1, kKeysPerProduct};
  }

  MH_INLINE Bf16Products(const AttentionParams& params, bool backward, int64_t row_stride, Matrix<const uint16_t> k,
                         Matrix<const uint16_t> v, ScratchAllocator& allocator)
      : gemm_(*params.bf16_gemm),
        d_(params.key_size),
        padded_keys_(padded_num_keys(params)),
        row_stride_(row_stride),
        scale_(params.scale) {
    const auto allocate = [&](int64_t count) { return reinterpret_cast<uint16_t*>(allocator.allocate(count / 2)); };
    transposed_k_ = allocate(padded_keys_ * d_), interleaved_kv_ = allocate(padded_keys_ * d_);
    packed_q_ = allocate(kBlockQueries * d_), bf16_tile_ = allocate(kKeysPerProduct * kBlockQueries);
    transpose_rows(k.data, k.row_stride, params.keys, padded_keys_, d_, transposed_k_);
    const Matrix<const uint16_t> kv = backward ? k : v;
    interleave_rows(kv.data, kv.row_stride, params.keys, padded_keys_, d_, interleaved_kv_);
    if (!backward) return;
    transposed_v_ = allocate(padded_keys_ * d_);
    transpose_rows(v.data, v.row_stride, params.keys, padded_keys_, d_, transposed_v_);
    interleaved_q_ = allocate(kBlockQueries * d_), packed_dout_ = allocate(kBlockQueries * d_),
    interleaved_dout_ = allocate(kBlockQueries * d_);
  }

  MH_INLINE void pack_queries(const QueryBlock& block, Matrix<const uint16_t> q) {
    pack_rows(block, q, packed_q_);
    if (interleaved_q_ != nullptr) interleave_rows(packed_q_, d_, kBlockQueries, kBlockQueries, d_, interleaved_q_);
  }
  MH_INLINE void pack_dout(const QueryBlock& block, Matrix<const uint16_t> dout) {
    pack_rows(block, dout, packed_dout_);
    interleave_rows(packed_dout_, d_, kBlockQueries, kBlockQueries, d_, interleaved_dout_);
  }
  MH_INLINE float* packed_queries() { return nullptr; }  // null: no bias can be added to bf16 queries
  static constexpr bool kQueriesScaled = false;          // scaling would round the bf16 queries

  MH_INLINE void compute_logits(const QueryBlock& block, float* s) const {
    multiply_transposed(block, packed_q_, transposed_k_, s);
    scale_rows(scale_, block.m, block.num_keys(), s, row_stride_);
  }
  MH_INLINE void accumulate_out(const QueryBlock& block, const float* p, float* sums) const {
    gemm_tile(block, p).add_product(interleaved_kv_, padded_keys_, d_, sums);
  }
  MH_INLINE void compute_dp(const QueryBlock& block, float* dp) const {
    multiply_transposed(block, packed_dout_, transposed_v_, dp);
  }
  MH_INLINE void accumulate_dq(const QueryBlock& block, const float* ds, float* sums) const {
    gemm_tile(block, ds).add_product(interleaved_kv_, padded_keys_, d_, sums);
  }
  MH_INLINE void accumulate_dk(const QueryBlock& block, const float* ds, float* dk) const {
    gemm_tile(block, ds).add_transposed_product(interleaved_q_, d_, dk);
  }
  MH_INLINE void accumulate_dv(const QueryBlock& block, const float* p, float* dv) const {
    gemm_tile(block, p).add_transposed_product(interleaved_dout_, d_, dv);
  }

 private:
  MH_INLINE void pack_rows(const QueryBlock& block, Matrix<const uint16_t> from, uint16_t* to) const {
    copy_rows(from.data + block.first * from.row_stride, from.row_stride, block.m, kBlockQueries, d_, to);
  }
  MH_INLINE void multiply_transposed(const QueryBlock& block, const uint16_t* rows, const uint16_t* transposed_kv,
                                     float* tile) const {
    gemm_product<false>(gemm_, kBlockQueries, block.num_keys(), d_, {rows, d_},
                        {transposed_kv + block.key_begin * d_, d_}, {tile, row_stride_});
  }
  const Bf16Gemm& gemm_;
  int64_t d_, padded_keys_, row_stride_;
  float scale_;
  // Right operands: transposed keys, transposed values (backward pass), and interleaved_kv_ with the values in the
  // forward pass or the keys in the backward pass.
  uint16_t *transposed_k_, *transposed_v_ = nullptr, *interleaved_kv_;
  // packed_q_: queries; packed_dout_: dO in the backward pass; both left operands (block, size). interleaved_q_ and
  // interleaved_dout_: the same rows as right operands, in the backward pass.
  uint16_t *packed_q_, *interleaved_q_ = nullptr, *packed_dout_ = nullptr, *interleaved_dout_ = nullptr;
  uint16_t* bf16_tile_;  // scratch of GemmTile (block, 64)
};

}  // namespace mh::kernels
