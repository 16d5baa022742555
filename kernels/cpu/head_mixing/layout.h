// The layout of tiles of head mixing on a CPU, and their memory.
#pragma once

#include <algorithm>

#include "cpu/attention.h"
#include "cpu/attention_sizes.h"
#include "cpu/head_mix_chunk.h"
#include "cpu/head_mixing_attention.h"

namespace mh::kernels {

constexpr int64_t chunk = kMixWidth;  // keys

MH_INLINE int64_t chunks_of(int64_t keys) { return (keys + chunk - 1) / chunk; }

// Queries and keys of a tile. They follow from the sizes and the cache alone, since they determine the order of
// summation.
struct TileSize {
  int64_t rows, span;  // multiples of 8 and of `chunk`
};
MH_INLINE TileSize tile_size(const AttentionParams& params) {
  constexpr int64_t least = 32, most = 64;
  const int64_t all = chunks_of(params.max_keys) * chunk, heads = std::max(params.in_heads, params.out_heads);
  const int64_t key_bytes = heads * static_cast<int64_t>(sizeof(float)),
                query_bytes = std::max<int64_t>(1, all * key_bytes);
  // All keys at once although the tile exceeds the second-level cache: two passes take 1.4 times the products, which
  // costs more than reading the third level up to this size.
  if (least * query_bytes > 8 * params.l2_bytes)
    return {most, std::max<int64_t>(1, params.l2_bytes / 2 / (most * key_bytes * chunk)) * chunk};
  // More queries for more keys, since each tile visits all keys and their gradients.
  return {params.max_keys <= 1024 ? least : std::clamp(4 * params.l2_bytes / query_bytes / 8 * 8, least, most), all};
}

// The layout of a tile of logits or probabilities: for each query, chunk after chunk of keys, in each chunk head after
// head, so that the chunk of all heads, which is mixed, is contiguous.
struct Layout {
  int64_t heads, chunks;  // chunks of all keys
  int64_t rows, span;     // queries and keys of a tile
  int64_t dk, dv;
  MH_INLINE Layout(const AttentionParams& params, const TileSize& size)
      : heads(std::max(params.in_heads, params.out_heads)),
        chunks(chunks_of(params.keys)),
        rows(size.rows),
        span(size.span),
        dk(padded(params.key_size)),
        dv(padded(params.value_size)) {}
  // Query stride: one cache line more, so that queries are not a power of two apart.
  MH_INLINE int64_t query() const { return heads * span + lanes; }
  MH_INLINE int64_t tile() const { return rows * query(); }
  MH_INLINE int64_t step() const { return heads * chunk; }  // chunk stride
  MH_INLINE int64_t keys() const { return chunks * chunk; }
  // Size of a row of dropout decisions, with the padding that decide_range() writes.
  MH_INLINE int64_t decisions() const { return span + 2 * kDropoutGroup; }
};

// Returns the layout of one query with all keys.
MH_INLINE Layout decode_layout(const AttentionParams& params) { return {params, {1, chunks_of(params.keys) * chunk}}; }

MH_INLINE bool is_decode(const AttentionParams& params) {
  return params.queries <= kMaxDecodeQueries && !params.gradient && !params.has_dropout() && !params.has_relative();
}

MH_INLINE int64_t decisions_scratch(const AttentionParams& params, const Layout& l) {
  return params.has_dropout() ? l.heads * l.decisions() : 0;
}
MH_INLINE int64_t by_distance_scratch(const AttentionParams& params, const Layout& l) {
  return params.has_relative() ? l.rows * distances_of(l.span, l.rows) : 0;
}
MH_INLINE int64_t positions_scratch(const AttentionParams& params, const Layout& l) {
  if (uses_bf16_gemm(params)) return l.rows * kGemmColumns / 2;  // the rounded part of a tile
  return params.has_relative() ? params.in_heads * l.rows * l.dk + by_distance_scratch(params, l) : 0;
}

MH_INLINE int64_t key_floats(const AttentionParams& params) {
  return params.in_heads * chunks_of(params.keys) * chunk * padded(params.key_size);
}
MH_INLINE int64_t value_floats(const AttentionParams& params) {
  return params.out_heads * chunks_of(params.keys) * chunk * padded(params.value_size);
}

}  // namespace mh::kernels
