// Products of a tile's queries with keys, values and distances (head_mixing_attention.cpp).
#pragma once

#include <cstring>
#include <type_traits>

#include "cpu/head_mixing/pack.h"
#include "cpu/products.h"
#include "cpu/relative.h"

namespace mh::kernels {

namespace {

using Tile = std::conditional_t<kLevel == Level::avx512, Tile8x2, Tile4x1>;

// The queries of a tile.
struct Queries {
  int64_t first, count;
};

// The keys of a span that the queries of a tile see, counted from its first key: logits exist up to the keys that the
// last of each eight queries sees.
struct VisibleKeys {
  int64_t query, count;  // first query of the tile, and number of queries
  int64_t begin;         // the span's first key, a multiple of `chunk`
  int64_t queries;       // `count`, up to a multiple of 8
  int64_t first,
      width;  // keys that the first query sees, negative if they end before the span; keys that the last one sees
  bool causal;
  MH_INLINE VisibleKeys(const AttentionParams& params, const Layout& l, const Queries& tile, int64_t key)
      : query(tile.first),
        count(tile.count),
        begin(key),
        queries((count + 7) / 8 * 8),
        first(params.visible_end(query) - key),
        width(std::clamp<int64_t>(params.visible_end(query + count - 1) - key, 0, l.span)),
        causal(params.causal) {}
  MH_INLINE int64_t reach(int64_t i) const { return causal ? std::clamp<int64_t>(first + (i | 7), 0, width) : width; }
  MH_INLINE bool all_see(int64_t keys) const { return !causal || first + 7 >= std::min(keys, width); }
};

// Returns the offset of a key in the elements of one head of a query; contiguous up to the end of the chunk.
MH_INLINE int64_t key_offset(const Layout& l, int64_t key) { return key / chunk * l.step() + key % chunk; }
MH_INLINE int64_t contiguous_keys(int64_t key, int64_t end) { return std::min(end, (key / chunk + 1) * chunk) - key; }

// Rows of `size` elements of several heads of a tile, and their scale.
struct TileRows {
  int64_t heads, size;
  float factor;
};

// Computes tile (queries, …) for all chunks that they see = rows (heads, l.rows, padded size) times transposed (heads,
// chunks, size, chunk).
void products_with_keys(const Layout& l, const TileRows& of, const VisibleKeys& visible, const float* rows,
                        const float* transposed, float* tile) {
  const int64_t size = of.size, wide = padded(size);
  for (int64_t j = 0; j < of.heads; ++j)
    for (int64_t c = 0; c * chunk < visible.width; ++c) {
      const float *a = rows + j * l.rows * wide, *b = transposed + ((j * l.chunks + c) * chunk + visible.begin) * size;
      float* to = tile + c * l.step() + j * chunk;
      if (visible.all_see((c + 1) * chunk)) {
        product<Tile, false>(visible.queries, padded(std::min(chunk, visible.width - c * chunk)), size, {a, wide, 1},
                             {b, chunk}, {to, l.query()});
        continue;
      }
      for (int64_t y = 0; y < visible.queries; y += 8)
        product<Tile, false>(8, padded(std::clamp<int64_t>(visible.reach(y) - c * chunk, 0, chunk)), size,
                             {a + y * wide, wide, 1}, {b, chunk}, {to + y * l.query(), l.query()});
    }
}

// Computes sums (queries, wide) += tile of one head times values (keys, wide).
void product_over_keys(const Layout& l, const VisibleKeys& visible, int64_t wide, const float* tile,
                       const float* values, float* sums) {
  const auto add = [&](int64_t c, int64_t y, int64_t queries, int64_t count) {
    product<Tile, true>(queries, wide, count, {tile + c * l.step() + y * l.query(), l.query(), 1},
                        {values + (visible.begin + c * chunk) * wide, wide}, {sums + y * wide, wide});
  };
  for (int64_t c = 0; c * chunk < visible.width; ++c) {
    if (visible.all_see((c + 1) * chunk)) add(c, 0, visible.queries, std::min(chunk, visible.width - c * chunk));
    else
      for (int64_t y = 0; y < visible.queries; y += 8)
        if (visible.reach(y) > c * chunk) add(c, y, 8, std::min(visible.reach(y) - c * chunk, chunk));
  }
}

// Computes sums (keys, wide) += tile of one head, transposed, times rows (queries, wide).
void product_over_queries(const Layout& l, const VisibleKeys& visible, int64_t wide, const float* tile,
                          const float* rows, float* sums) {
  for (int64_t c = 0; c * chunk < visible.width; ++c) {
    const int64_t count = padded(std::min(chunk, visible.width - c * chunk));
    const float* a = tile + c * l.step();
    float* to = sums + (visible.begin + c * chunk) * wide;
    if (visible.all_see((c + 1) * chunk)) {
      product<Tile, true>(count, wide, visible.queries, {a, 1, l.query()}, {rows, wide}, {to, wide});
      continue;
    }
    int64_t from = 0;  // first query whose group of eight sees the keys
    for (int64_t x = 0; x < count; x += 8) {
      while (from < visible.queries && padded(visible.reach(from)) <= c * chunk + x) from += 8;
      product<Tile, true>(8, wide, visible.queries - from, {a + x + from * l.query(), 1, l.query()},
                          {rows + from * wide, wide}, {to + x * wide, wide});
    }
  }
}

// Products with keys in bf16; `rows` and `transposed` contain the operands, in half of their floats.
void gemm_with_keys(const Bf16Gemm& gemm, const Layout& l, const TileRows& of, const VisibleKeys& visible,
                    const float* rows, const float* transposed, float* tile) {
  const int64_t wide = padded(of.size);
  for (int64_t j = 0; j < of.heads; ++j)
    for (int64_t s = 0; s < visible.width; s += kGemmColumns) {
      float* to = tile + j * chunk + key_offset(l, s);
      const auto* left = reinterpret_cast<const uint16_t*>(rows + j * l.rows * wide);
      const auto* right =
          reinterpret_cast<const uint16_t*>(transposed + j * l.keys() * wide) + (visible.begin + s) * wide;
      gemm_product<false>(gemm, l.rows, kGemmColumns, wide, {left, wide}, {right, wide}, {to, l.query()});
      if (of.factor != 1) scale_rows(of.factor, visible.queries, kGemmColumns, to, l.query());
    }
}
// Returns the tile of one head. Its elements are defined up to a multiple of 16.
MH_INLINE auto gemm_tile(const Bf16Gemm& gemm, const Layout& l, const VisibleKeys& visible, const float* tile,
                         uint16_t* rounded_tile) {
  return GemmTile{gemm,
                  l.rows,
                  visible.begin,
                  visible.begin + visible.width,
                  l.query(),
                  [&, tile](int64_t s) { return tile + key_offset(l, s - visible.begin); },
                  [&](int64_t i) { return i < visible.queries ? visible.begin + padded(visible.reach(i)) : 0; },
                  rounded_tile};
}

// Writes to (heads, l.rows, padded size) floats: the bf16 elements in the first half of each head, and interleaved
// pairs of rows in the second. Not for fp32.
template <class T>
void take_rows(const Layout& l, const TileRows& of, Heads<const T> from, const Queries& queries, bool paired,
               float* to) {
  if constexpr (std::is_same_v<T, uint16_t>)
    for (int64_t j = 0; j < of.heads; ++j) {
      const int64_t wide = padded(of.size);
      auto* rows = reinterpret_cast<uint16_t*>(to + j * l.rows * wide);
      copy_rows(from.at(j, queries.first), from.row_stride, queries.count, l.rows, of.size, rows);
      if (paired) pair_rows(rows, wide, l.rows, l.rows, wide, rows + l.rows * wide);
    }
}

// Adds the biases of relative positions to queries, rows (heads, l.rows, dk), scaled: the bias of keys to `rows`, the
// bias of distances to `positions`.
void with_biases(const AttentionParams& params, const Layout& l, int64_t count, float* rows, float* positions) {
  const RelativeParams& r = params.relative;
  std::fill_n(positions, params.in_heads * l.rows * l.dk, 0.0F);
  for (int64_t j = 0; j < params.in_heads; ++j)
    for (int64_t i = 0; i < count; ++i)
      for (int64_t s = 0; s < l.dk; s += lanes) {
        const int64_t at = (j * l.rows + i) * l.dk + s;
        Floats q, u, v;
        load(rows + at, q);
        load(r.u + j * l.dk + s, u);
        load(r.v + j * l.dk + s, v);
        u = q + u * params.scale, v = q + v * params.scale;
        store(u, rows + at);
        store(v, positions + at);
      }
}

// Returns the part of a run that a tile reads, keys counted from the span's first.
MH_INLINE DistanceRange distance_range(const AttentionParams& params, const VisibleKeys& visible, const Run& run) {
  DistanceRange z =
      distance_range(run, params.queries, visible.query, visible.count, visible.begin, visible.begin + visible.width);
  z.key -= visible.begin;
  return z;
}

// Scratch of relative positions: queries with their bias for distances (in, rows, dk); (rows, distances).
struct DistanceScratch {
  float *positions, *by_distance;
};

// Adds the terms of distances to a tile of logits.
void add_distances(const AttentionParams& params, const Layout& l, const VisibleKeys& visible,
                   const DistanceScratch& scratch, float* tile) {
  const RelativeParams& r = params.relative;
  const int64_t row = distances_of(l.span, l.rows);
  for (int64_t j = 0; j < params.in_heads; ++j)
    for (int64_t run = 0; run < r.num_runs; ++run) {
      const DistanceRange z = distance_range(params, visible, r.runs[run]);
      if (z.keys <= 0) continue;
      product<Tile, false>(visible.queries, padded(z.rows), l.dk, {scratch.positions + j * l.rows * l.dk, l.dk, 1},
                           {r.transposed + j * l.dk * r.distances + z.row, r.distances}, {scratch.by_distance, row});
      for (int64_t i = 0; i < visible.count; ++i) {
        const float* from = scratch.by_distance + i * row + visible.count - 1 - i;
        const int64_t end = std::min(z.key + z.keys, visible.reach(i));
        for (int64_t s = z.key, n = 0; s < end; s += n) {
          n = contiguous_keys(s, end);
          add_to(from + s - z.key, n, tile + i * l.query() + j * chunk + key_offset(l, s));
        }
      }
    }
}

// The gradients of relative positions: of r for all heads, and of `positions`.
struct DistanceGradients {
  float *dr, *dy;
};

// Adds the gradients of these terms, from the gradient of the logits of head j.
void distances_backward(const AttentionParams& params, const Layout& l, const VisibleKeys& visible, int64_t j,
                        const DistanceScratch& scratch, const float* tile, const DistanceGradients& to) {
  const RelativeParams& r = params.relative;
  const int64_t row = distances_of(l.span, l.rows);
  for (int64_t run = 0; run < r.num_runs; ++run) {
    const DistanceRange z = distance_range(params, visible, r.runs[run]);
    if (z.keys <= 0) continue;
    std::fill_n(scratch.by_distance, visible.queries * row, 0.0F);
    for (int64_t i = 0; i < visible.count; ++i) {
      float* place = scratch.by_distance + i * row + visible.count - 1 - i;
      const int64_t end =
          std::min({z.key + z.keys, params.visible_end(visible.query + i) - visible.begin, visible.width});
      for (int64_t s = z.key, n = 0; s < end; s += n) {
        n = contiguous_keys(s, end);
        std::memcpy(place + s - z.key, tile + i * l.query() + j * chunk + key_offset(l, s),
                    static_cast<size_t>(n) * sizeof(float));
      }
    }
    const int64_t of_head = j * r.distances * l.dk + z.row * l.dk, of_rows = j * l.rows * l.dk;
    product<Tile, true>(visible.queries, l.dk, z.rows, {scratch.by_distance, row, 1},
                        {static_cast<const float*>(r.rows) + of_head, l.dk}, {to.dy + of_rows, l.dk});
    product<Tile, true>((z.rows + 7) / 8 * 8, l.dk, visible.queries, {scratch.by_distance, 1, row},
                        {scratch.positions + of_rows, l.dk}, {to.dr + of_head, l.dk});
  }
}

}  // namespace

}  // namespace mh::kernels
