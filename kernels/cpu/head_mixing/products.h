// Matrix products of a tile of queries with the keys, the values and r (relative positions), for head mixing on a CPU.
// Each function computes all heads, or one head, of a tile, in chunks of 128 keys. fp32 products have register tiles of
// 8 rows and 32 columns, or of 4 rows and 16 columns without AVX-512 (cpu/products.h); Bf16Gemm computes 64 columns.
#pragma once

#include <cstring>
#include <type_traits>

#include "cpu/head_mixing/pack.h"
#include "cpu/products.h"
#include "cpu/relative.h"

namespace mh::kernels {

namespace {

// The queries of a tile: `count` queries of the batch row, from query `first` on.
struct QueryRange {
  int64_t first, count;
};

// The keys of a span up to the last key that the queries of a tile see; a window may hide the first keys. Keys are
// counted from the first key of the span. Under a causal mask or a window, logits are computed for groups of 8 queries,
// each up to the last key that the last query of the group sees.
struct VisibleKeys {
  int64_t first_query;          // first query of the tile, counted from the first query of the batch row
  int64_t num_queries;          // number of queries of the tile, at most layout.rows
  int64_t key_begin;            // first key of the span, a multiple of kChunkKeys
  int64_t padded_queries;       // num_queries rounded up to a multiple of 8
  int64_t first_query_key_end;  // end of the keys that first_query sees; may be outside the span
  int64_t num_keys;             // number of keys of the span up to the last key that the last query sees
  bool has_growing_end;         // whether each query sees one key more than the previous query, up to the last key
  MH_INLINE VisibleKeys(const AttentionParams& params, const TileLayout& layout, const QueryRange& tile, int64_t key)
      : first_query(tile.first),
        num_queries(tile.count),
        key_begin(key),
        padded_queries(round_up(num_queries, 8)),
        first_query_key_end(params.visible_end(first_query) - key),
        num_keys(std::clamp<int64_t>(params.visible_end(first_query + num_queries - 1) - key, 0, layout.span)),
        has_growing_end(params.causal || params.window > 0) {}
  // Returns the number of keys with logits for query i of the tile.
  MH_INLINE int64_t num_logits(int64_t i) const {
    return has_growing_end ? std::clamp<int64_t>(first_query_key_end + (i | 7), 0, num_keys) : num_keys;
  }
  // Returns whether every group of 8 queries has logits for the first `keys` keys of the span, not counting keys that
  // no query sees.
  MH_INLINE bool all_visible(int64_t keys) const {
    return !has_growing_end || first_query_key_end + 7 >= std::min(keys, num_keys);
  }
};

// Returns the offset of key `key` of a span, in floats from key 0 of the same query and head in a tile. The keys of a
// chunk are contiguous.
MH_INLINE int64_t key_offset(const TileLayout& layout, int64_t key) {
  return key / kChunkKeys * layout.chunk_stride() + key % kChunkKeys;
}
// Returns the number of keys from `key` on, before `end`, whose elements are contiguous.
MH_INLINE int64_t num_contiguous_keys(int64_t key, int64_t end) {
  return std::min(end, (key / kChunkKeys + 1) * kChunkKeys) - key;
}

// The packed rows of a tile, queries or output gradients: the number of heads, the number of elements of a row, and the
// factor by which the rows or their products are scaled.
struct PackedRowSpec {
  int64_t heads, size;
  float factor;
};

// Computes a tile: the fp32 products of packed_rows (heads, layout.rows, padded size) with the visible columns of
// `transposed_kv` (heads, chunks, size, kChunkKeys), the packed keys or values.
void multiply_rows_fp32(const TileLayout& layout, const PackedRowSpec& row_spec, const VisibleKeys& visible_range,
                        const float* packed_rows, const float* transposed_kv, float* tile) {
  const int64_t size = row_spec.size, padded_size = pad_to_lanes(size);
  for (int64_t j = 0; j < row_spec.heads; ++j)
    for (int64_t c = 0; c * kChunkKeys < visible_range.num_keys; ++c) {
      const float *a = packed_rows + j * layout.rows * padded_size,
                  *b = transposed_kv + ((j * layout.num_chunks + c) * kChunkKeys + visible_range.key_begin) * size;
      float* to = tile + c * layout.chunk_stride() + j * kChunkKeys;
      if (visible_range.all_visible((c + 1) * kChunkKeys)) {
        matmul<BestTile, false>(visible_range.padded_queries,
                                pad_to_lanes(std::min(kChunkKeys, visible_range.num_keys - c * kChunkKeys)), size,
                                {a, padded_size, 1}, {b, kChunkKeys}, {to, layout.query_stride()});
        continue;
      }
      for (int64_t y = 0; y < visible_range.padded_queries; y += 8)
        matmul<BestTile, false>(
            8, pad_to_lanes(std::clamp<int64_t>(visible_range.num_logits(y) - c * kChunkKeys, 0, kChunkKeys)), size,
            {a + y * padded_size, padded_size, 1}, {b, kChunkKeys},
            {to + y * layout.query_stride(), layout.query_stride()});
    }
}

// Computes `sums` (queries, padded_size) += `tile` (queries, keys) · `right` (keys, padded_size) for one head, in fp32.
// right: packed values or keys.
void product_over_keys(const TileLayout& layout, const VisibleKeys& visible_range, int64_t padded_size,
                       const float* tile, const float* right, float* sums) {
  const auto add = [&](int64_t c, int64_t y, int64_t queries, int64_t count) {
    matmul<BestTile, true>(queries, padded_size, count,
                           {tile + c * layout.chunk_stride() + y * layout.query_stride(), layout.query_stride(), 1},
                           {right + (visible_range.key_begin + c * kChunkKeys) * padded_size, padded_size},
                           {sums + y * padded_size, padded_size});
  };
  for (int64_t c = 0; c * kChunkKeys < visible_range.num_keys; ++c) {
    if (visible_range.all_visible((c + 1) * kChunkKeys))
      add(c, 0, visible_range.padded_queries, std::min(kChunkKeys, visible_range.num_keys - c * kChunkKeys));
    else
      for (int64_t y = 0; y < visible_range.padded_queries; y += 8)
        if (visible_range.num_logits(y) > c * kChunkKeys)
          add(c, y, 8, std::min(visible_range.num_logits(y) - c * kChunkKeys, kChunkKeys));
  }
}

// Computes `sums` (keys, padded_size) += `tile`ᵀ (keys, queries) · packed_rows (queries, padded_size) for one head, in
// fp32.
void product_over_queries(const TileLayout& layout, const VisibleKeys& visible_range, int64_t padded_size,
                          const float* tile, const float* packed_rows, float* sums) {
  for (int64_t c = 0; c * kChunkKeys < visible_range.num_keys; ++c) {
    const int64_t count = pad_to_lanes(std::min(kChunkKeys, visible_range.num_keys - c * kChunkKeys));
    const float* a = tile + c * layout.chunk_stride();
    float* to = sums + (visible_range.key_begin + c * kChunkKeys) * padded_size;
    if (visible_range.all_visible((c + 1) * kChunkKeys)) {
      matmul<BestTile, true>(count, padded_size, visible_range.padded_queries, {a, 1, layout.query_stride()},
                             {packed_rows, padded_size}, {to, padded_size});
      continue;
    }
    int64_t group_begin = 0;  // first query of the first group of 8 with elements for key x of the chunk
    for (int64_t x = 0; x < count; x += 8) {
      while (group_begin < visible_range.padded_queries &&
             pad_to_lanes(visible_range.num_logits(group_begin)) <= c * kChunkKeys + x)
        group_begin += 8;
      matmul<BestTile, true>(8, padded_size, visible_range.padded_queries - group_begin,
                             {a + x + group_begin * layout.query_stride(), 1, layout.query_stride()},
                             {packed_rows + group_begin * padded_size, padded_size},
                             {to + x * padded_size, padded_size});
    }
  }
}

// Computes a tile: the products of packed_rows with the visible columns of `transposed_kv`, times row_spec.factor. Like
// multiply_rows_fp32(), but the operands are bf16, and the products are scaled instead of the rows. Each head of
// packed_rows and of `transposed_kv` takes as much memory as with fp32 elements; its bf16 operand is in the first half.
void multiply_rows_bf16(const Bf16Gemm& gemm, const TileLayout& layout, const PackedRowSpec& row_spec,
                        const VisibleKeys& visible_range, const float* packed_rows, const float* transposed_kv,
                        float* tile) {
  const int64_t padded_size = pad_to_lanes(row_spec.size);
  for (int64_t j = 0; j < row_spec.heads; ++j)
    for (int64_t s = 0; s < visible_range.num_keys; s += kGemmColumns) {
      float* to = tile + j * kChunkKeys + key_offset(layout, s);
      const auto* left = reinterpret_cast<const uint16_t*>(packed_rows + j * layout.rows * padded_size);
      const auto* right = reinterpret_cast<const uint16_t*>(transposed_kv + j * layout.padded_keys() * padded_size) +
                          (visible_range.key_begin + s) * padded_size;
      gemm_product<false>(gemm, layout.rows, kGemmColumns, padded_size, {left, padded_size}, {right, padded_size},
                          {to, layout.query_stride()});
      if (row_spec.factor != 1)
        scale_rows(row_spec.factor, visible_range.padded_queries, kGemmColumns, to, layout.query_stride());
    }
}
// Returns one head of a tile as an operand of bf16 products. Query i has elements for pad_to_lanes(num_logits(i)) keys.
MH_INLINE auto gemm_tile(const Bf16Gemm& gemm, const TileLayout& layout, const VisibleKeys& visible_range,
                         const float* tile, uint16_t* bf16_tile) {
  return GemmTile{gemm,
                  layout.rows,
                  visible_range.key_begin,
                  visible_range.key_begin + visible_range.num_keys,
                  layout.query_stride(),
                  [&, tile](int64_t s) { return tile + key_offset(layout, s - visible_range.key_begin); },
                  [&](int64_t i) {
                    return i < visible_range.padded_queries
                               ? visible_range.key_begin + pad_to_lanes(visible_range.num_logits(i))
                               : 0;
                  },
                  bf16_tile};
}

// Packs the bf16 rows of a tile into `to` (heads, layout.rows, padded size) floats: a left operand in the first half of
// each head, and, if `packs_right_operands`, a right operand of the same rows in the second half. Does nothing for fp32
// tensors.
template <class T>
void pack_bf16_rows(const TileLayout& layout, const PackedRowSpec& row_spec, HeadsView<const T> from,
                    const QueryRange& queries, bool packs_right_operands, float* to) {
  if constexpr (std::is_same_v<T, uint16_t>)
    for (int64_t j = 0; j < row_spec.heads; ++j) {
      const int64_t padded_size = pad_to_lanes(row_spec.size);
      auto* head_rows = reinterpret_cast<uint16_t*>(to + j * layout.rows * padded_size);
      copy_rows(from.at(j, queries.first), from.row_stride, queries.count, layout.rows, row_spec.size, head_rows);
      if (packs_right_operands)
        interleave_rows(head_rows, padded_size, layout.rows, layout.rows, padded_size,
                        head_rows + layout.rows * padded_size);
    }
}

// Replaces the scaled queries packed_q (h, layout.rows, dk) by scale * (q + u), and writes scale * (q + v) to `q_v`
// (h, layout.rows, dk), for the first `count` queries.
void add_relative_biases(const AttentionParams& params, const TileLayout& layout, int64_t count, float* packed_q,
                         float* q_v) {
  const RelativeParams& relative = params.relative;
  std::fill_n(q_v, params.heads * layout.rows * layout.dk, 0.0F);
  for (int64_t j = 0; j < params.heads; ++j)
    for (int64_t i = 0; i < count; ++i)
      for (int64_t s = 0; s < layout.dk; s += lanes) {
        const int64_t offset = (j * layout.rows + i) * layout.dk + s;
        Floats q, u, v;
        load(packed_q + offset, q);
        load(relative.u + j * layout.dk + s, u);
        load(relative.v + j * layout.dk + s, v);
        u = q + u * params.scale, v = q + v * params.scale;
        store(u, packed_q + offset);
        store(v, q_v + offset);
      }
}

// Returns the keys of a key range that a tile sees, counted from the first key of the span, and the rows of r that
// belong to the distances of these keys.
MH_INLINE DistanceRange distance_range(const AttentionParams& params, const VisibleKeys& visible_range,
                                       const KeyRange& key_range) {
  DistanceRange range = distance_range(key_range, params.queries, visible_range.first_query, visible_range.num_queries,
                                       visible_range.key_begin, visible_range.key_begin + visible_range.num_keys);
  range.first_key -= visible_range.key_begin;
  return range;
}

// Scratch of relative positions: q_v, scale * (q + v) (h, rows, dk); and distance_products (rows,
// distance_row_stride()), the products of one head's q_v with consecutive rows of r. The backward pass replaces these
// products by their gradients.
struct DistanceScratch {
  float *q_v, *distance_products;
};

// Adds the position term scale * (q + v) · r[distance] to a tile of logits.
void add_position_term(const AttentionParams& params, const TileLayout& layout, const VisibleKeys& visible_range,
                       const DistanceScratch& scratch, float* tile) {
  const RelativeParams& relative = params.relative;
  const int64_t product_stride = distance_row_stride(layout.span, layout.rows);
  for (int64_t j = 0; j < params.heads; ++j)
    for (int64_t range_index = 0; range_index < relative.num_key_ranges; ++range_index) {
      const DistanceRange range = distance_range(params, visible_range, relative.key_ranges[range_index]);
      if (range.num_keys <= 0) continue;
      matmul<BestTile, false>(
          visible_range.padded_queries, pad_to_lanes(range.num_rows), layout.dk,
          {scratch.q_v + j * layout.rows * layout.dk, layout.dk, 1},
          {relative.r_transposed + j * layout.dk * relative.num_distances + range.first_row, relative.num_distances},
          {scratch.distance_products, product_stride});
      for (int64_t i = 0; i < visible_range.num_queries; ++i) {
        const float* from = scratch.distance_products + i * product_stride + visible_range.num_queries - 1 - i;
        const int64_t end = std::min(range.first_key + range.num_keys, visible_range.num_logits(i));
        for (int64_t s = range.first_key, n = 0; s < end; s += n) {
          n = num_contiguous_keys(s, end);
          add_to(from + s - range.first_key, n,
                 tile + i * layout.query_stride() + j * kChunkKeys + key_offset(layout, s));
        }
      }
    }
}

// The gradients of the position term: dr (h, distances, dk) with respect to r, and dq_v (h, rows, dk) with respect to
// DistanceScratch::q_v.
struct DistanceGradients {
  float *dr, *dq_v;
};

// Adds the gradients of the position term scale * (q + v) · r[distance] of head j to `to`. tile: gradients of the
// logits.
void position_term_backward(const AttentionParams& params, const TileLayout& layout, const VisibleKeys& visible_range,
                            int64_t j, const DistanceScratch& scratch, const float* tile, const DistanceGradients& to) {
  const RelativeParams& relative = params.relative;
  const int64_t product_stride = distance_row_stride(layout.span, layout.rows);
  for (int64_t range_index = 0; range_index < relative.num_key_ranges; ++range_index) {
    const DistanceRange range = distance_range(params, visible_range, relative.key_ranges[range_index]);
    if (range.num_keys <= 0) continue;
    std::fill_n(scratch.distance_products, visible_range.padded_queries * product_stride, 0.0F);
    for (int64_t i = 0; i < visible_range.num_queries; ++i) {
      float* row_products = scratch.distance_products + i * product_stride + visible_range.num_queries - 1 - i;
      const int64_t end = std::min({range.first_key + range.num_keys,
                                    params.visible_end(visible_range.first_query + i) - visible_range.key_begin,
                                    visible_range.num_keys});
      for (int64_t s = range.first_key, n = 0; s < end; s += n) {
        n = num_contiguous_keys(s, end);
        std::memcpy(row_products + s - range.first_key,
                    tile + i * layout.query_stride() + j * kChunkKeys + key_offset(layout, s),
                    static_cast<size_t>(n) * sizeof(float));
      }
    }
    const int64_t r_offset = j * relative.num_distances * layout.dk + range.first_row * layout.dk,
                  q_v_offset = j * layout.rows * layout.dk;
    matmul<BestTile, true>(
        visible_range.padded_queries, layout.dk, range.num_rows, {scratch.distance_products, product_stride, 1},
        {static_cast<const float*>(relative.r) + r_offset, layout.dk}, {to.dq_v + q_v_offset, layout.dk});
    matmul<BestTile, true>(round_up(range.num_rows, 8), layout.dk, visible_range.padded_queries,
                           {scratch.distance_products, 1, product_stride}, {scratch.q_v + q_v_offset, layout.dk},
                           {to.dr + r_offset, layout.dk});
  }
}

}  // namespace

}  // namespace mh::kernels
