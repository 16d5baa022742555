// How head mixing on a CPU lays out its tiles of numbers, and the memory that they take.
#pragma once

#include <algorithm>

#include "cpu/attention.h"
#include "cpu/attention_sizes.h"
#include "cpu/head_mix_chunk.h"
#include "cpu/head_mixing_attention.h"

namespace mh::kernels {

constexpr int64_t chunk = kMixWidth;  // keys

MH_INLINE int64_t chunks_of(int64_t keys) { return (keys + chunk - 1) / chunk; }

// Queries and keys of a tile, fixed by the sizes and the cache alone, since they decide in which order numbers are
// added.
struct TileSize {
  int64_t rows, span;  // multiples of 8 and of `chunk`
};
MH_INLINE TileSize tile_size(const AttentionParams& params) {
  constexpr int64_t least = 32, most = 64;
  const int64_t all = chunks_of(params.max_keys) * chunk, heads = std::max(params.in_heads, params.out_heads);
  const int64_t of_key = heads * static_cast<int64_t>(sizeof(float)), of_query = std::max<int64_t>(1, all * of_key);
  // All keys at once, though a tile is larger than the cache: two passes take 1.4 times the products, which reading the
  // third level costs no sooner.
  if (least * of_query > 8 * params.l2_bytes)
    return {most, std::max<int64_t>(1, params.l2_bytes / 2 / (most * of_key * chunk)) * chunk};
  // Of more keys more queries, since each tile runs through all keys and their gradients.
  return {params.max_keys <= 1024 ? least : std::clamp(4 * params.l2_bytes / of_query / 8 * 8, least, most), all};
}

// How the numbers of a tile of queries lie: of a query chunk after chunk of keys, in it head after head, so that a
// chunk of all heads, which is mixed, is in one place.
struct Layout {
  int64_t heads, chunks;  // chunks of all keys
  int64_t rows, span;     // queries at once, keys at once
  int64_t dk, dv;
  MH_INLINE Layout(const AttentionParams& params, const TileSize& size)
      : heads(std::max(params.in_heads, params.out_heads)),
        chunks(chunks_of(params.keys)),
        rows(size.rows),
        span(size.span),
        dk(padded(params.key_size)),
        dv(padded(params.value_size)) {}
  // A line more, so that queries are not a power of two apart.
  MH_INLINE int64_t query() const { return heads * span + lanes; }
  MH_INLINE int64_t tile() const { return rows * query(); }
  MH_INLINE int64_t step() const { return heads * chunk; }  // from chunk to chunk
  MH_INLINE int64_t keys() const { return chunks * chunk; }
  // A row of decisions, with what decide_range writes around it.
  MH_INLINE int64_t decisions() const { return span + 2 * kDropoutGroup; }
};

// One query by itself, of all keys.
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
  if (uses_bf16_gemm(params)) return l.rows * kGemmColumns / 2;  // what is rounded of a tile
  return params.has_relative() ? params.in_heads * l.rows * l.dk + by_distance_scratch(params, l) : 0;
}

MH_INLINE int64_t key_floats(const AttentionParams& params) {
  return params.in_heads * chunks_of(params.keys) * chunk * padded(params.key_size);
}
MH_INLINE int64_t value_floats(const AttentionParams& params) {
  return params.out_heads * chunks_of(params.keys) * chunk * padded(params.value_size);
}

}  // namespace mh::kernels
