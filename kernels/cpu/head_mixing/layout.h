// Sizes, memory layout and scratch memory of the tiles of head mixing on a CPU. In the shapes of this folder h is
// params.heads and hv is params.value_heads.
#pragma once

#include <algorithm>

#include "ceil_div.h"
#include "cpu/attention.h"
#include "cpu/attention_sizes.h"
#include "cpu/head_mix_chunk.h"
#include "cpu/head_mixing_attention.h"

namespace mh::kernels {

constexpr int64_t kChunkKeys = kMixWidth;  // keys of a chunk, the keys that are mixed at a time

// The numbers of queries and keys of a tile. They depend only on the tensor sizes and the cache size, not on the number
// of threads, since they determine the order of summation.
struct TileSize {
  // Number of queries, a multiple of 8, or 1 in the decode path; number of keys, a multiple of kChunkKeys.
  int64_t rows, span;
};
MH_INLINE TileSize tile_size(const AttentionParams& params) {
  constexpr int64_t min_rows = 32, max_rows = 64;
  const int64_t all_keys = round_up(params.max_keys, kChunkKeys),
                max_heads = std::max(params.heads, params.value_heads);
  const int64_t logit_bytes_per_key = max_heads * static_cast<int64_t>(sizeof(float)),
                query_bytes = std::max<int64_t>(1, all_keys * logit_bytes_per_key);
  // A tile has all keys even if it is up to 8 times as large as the L2 cache: tiles of a span of keys need two passes
  // with 1.4 times the products, which cost more than reading the tile from the L3 cache.
  if (min_rows * query_bytes > 8 * params.l2_bytes)
    return {max_rows,
            std::max<int64_t>(1, params.l2_bytes / 2 / (max_rows * logit_bytes_per_key * kChunkKeys)) * kChunkKeys};
  // With more than 1024 keys a tile has up to 64 queries, since each tile reads all keys and updates all key
  // gradients.
  return {
      params.max_keys <= 1024 ? min_rows : std::clamp(4 * params.l2_bytes / query_bytes / 8 * 8, min_rows, max_rows),
      all_keys};
}

// The layout of a tile of logits or probabilities: (queries, chunks, heads, keys of a chunk). For each query, a chunk
// of keys is contiguous over all heads, since its heads are mixed together.
struct TileLayout {
  int64_t max_heads;   // the larger of params.heads and params.value_heads
  int64_t num_chunks;  // number of chunks of all keys, even if a tile has only a span
  int64_t rows, span;  // queries and keys of a tile (TileSize)
  int64_t dk, dv;      // sizes of keys and values, padded to multiples of 16
  MH_INLINE TileLayout(const AttentionParams& params, const TileSize& size)
      : max_heads(std::max(params.heads, params.value_heads)),
        num_chunks(ceil_div(params.keys, kChunkKeys)),
        rows(size.rows),
        span(size.span),
        dk(pad_to_lanes(params.key_size)),
        dv(pad_to_lanes(params.value_size)) {}
  // Returns the query stride, in floats: one cache line more than the elements, so that queries are not a power of two
  // apart.
  MH_INLINE int64_t query_stride() const { return max_heads * span + lanes; }
  MH_INLINE int64_t tile_floats() const { return rows * query_stride(); }
  // Returns the distance, in floats, between consecutive chunks of a query.
  MH_INLINE int64_t chunk_stride() const { return max_heads * kChunkKeys; }
  MH_INLINE int64_t padded_keys() const { return num_chunks * kChunkKeys; }
  // Returns the head stride of a dropout mask of one query, with the padding that dropout_mask_range() writes.
  MH_INLINE int64_t dropout_mask_stride() const { return span + 2 * kDropoutGroupSize; }
};

// Returns the layout of a tile of one query and all keys.
MH_INLINE TileLayout layout_of_decode(const AttentionParams& params) {
  return {params, {1, round_up(params.keys, kChunkKeys)}};
}

// Returns whether the decode path (head_mixing/decode.h) serves a call with these parameters.
MH_INLINE bool is_decode(const AttentionParams& params) {
  return params.queries <= kMaxDecodeQueries && !params.has_backward && !params.has_dropout() &&
         !params.has_relative_positions();
}

// Returns the size of the dropout mask of one query for all heads, in floats.
MH_INLINE int64_t dropout_mask_scratch_floats(const AttentionParams& params, const TileLayout& layout) {
  return params.has_dropout() ? layout.max_heads * layout.dropout_mask_stride() : 0;
}
// Returns the number of floats of LogitSlopes, the derivatives of the logits of one query.
MH_INLINE int64_t slopes_scratch_floats(const AttentionParams& params, const TileLayout& layout) {
  return (params.soft_cap > 0 ? 2 : 1) * layout.query_stride();
}
// Returns the number of floats of DistanceScratch::distance_products.
MH_INLINE int64_t distance_products_scratch_floats(const AttentionParams& params, const TileLayout& layout) {
  return params.has_relative_positions() ? layout.rows * distance_row_stride(layout.span, layout.rows) : 0;
}
// Returns the size, in floats, of the scratch memory of a call with bf16 products (GemmTile::bf16_tile) or with
// relative positions (the two arrays of DistanceScratch). No call has bf16 products and relative positions.
MH_INLINE int64_t operand_scratch_floats(const AttentionParams& params, const TileLayout& layout) {
  if (uses_bf16_gemm(params)) return layout.rows * kGemmColumns / 2;
  return params.has_relative_positions()
             ? params.heads * layout.rows * layout.dk + distance_products_scratch_floats(params, layout)
             : 0;
}

// Return the sizes, in floats, of the keys (h, keys, dk) and of the values (hv, keys, dv), with the number of keys
// padded to whole chunks.
MH_INLINE int64_t key_floats(const AttentionParams& params) {
  return params.heads * round_up(params.keys, kChunkKeys) * pad_to_lanes(params.key_size);
}
MH_INLINE int64_t value_floats(const AttentionParams& params) {
  return params.value_heads * round_up(params.keys, kChunkKeys) * pad_to_lanes(params.value_size);
}

}  // namespace mh::kernels
