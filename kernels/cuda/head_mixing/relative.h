// Relative positions (RelativeParams) in kernels with head mixing. The caller passes q + u and q + v, each rounded to
// the type of the kernels, and receives their gradients separately.
//
// A tile of 16 keys is within one key range. With each tile of streamed rows a window of r is streamed: the 31 rows
// of r for the distances of 16 queries and 16 keys, and 16 more rows for each further row tile. The gradient of r is
// computed by blocks whose resident rows are rows of r. In these blocks 16 queries and 16 rows of r share a window of
// 31 keys and a window of 31 values (cuda/relative.h, cuda/distance_gradient.h).
#pragma once

#include "cuda/head_mixing/mixing.h"

namespace mh::kernels {

// Rows in shared memory with the interface of SlidingWindow (cuda/relative.h), but without a ring buffer.
template <class T, int kSize>
struct Window {
  static constexpr int kStride = kSize + kPad;
  const T* rows;
  static MH_DEVICE int wrap(int row) { return row; }
  MH_DEVICE const T* rows_at(int row) const { return rows + row * kStride; }
};

// The meaning of the rows and of the columns of two accumulators, together (16, 16).
enum class PairLayout { queries_keys, keys_queries, distances_queries };

// Adds to each element of `accum` (16, 16) the product of a query with a row of `window` (32 rows). kLayout determines
// the two indices of an element. The element of query i and key s takes row 15 - i + s, which is the row of r for their
// distance. The element of query i and distance s takes row i + s, which is the key or value at this distance from the
// query. queries: 16 rows. window_products: scratch of the warp.
template <int kSize, PairLayout kLayout, int kPrefetch, class Thread, class T>
MH_DEVICE void add_shifted(const Thread& thread, Accumulator (&accum)[2], float* window_products, const T* queries,
                           const T* window) {
  const int g = thread.lane() / 4, t = thread.lane() % 4;
  multiply_sliding<kSize, 32, kPrefetch>(thread, window_products, queries, Window<T, kSize>{window}, 0);
  MH_FOR (n, 2)
    MH_FOR (i, 4) {
      const int row = g + i / 2 * 8, column = n * 8 + 2 * t + i % 2;
      const int query = kLayout == PairLayout::queries_keys ? row : column, other_index = row + column - query;
      const int window_row = (kLayout == PairLayout::distances_queries ? query : 15 - query) + other_index;
      accum[n].x[i] += window_products[query * kProductStride<32> + window_row];
    }
}

// Divides the visible keys into tiles of 16; operator()(n) returns tile n. All keys of a tile belong to one KeyRange.
// The window of a tile has the rows of r for the distances between its keys and the queries of the block. last_query:
// last query of the block.
struct VisibleKeyTiles {
  const AttentionParams& params;
  IndexRange visible_range;
  int last_query;
  MH_DEVICE StreamedTile operator()(int n) const {
    for (int i = 0; i < params.relative.num_key_ranges; ++i) {
      const KeyRange& key_range = params.relative.key_ranges[i];
      const IndexRange range = intersect(visible_range, key_range);
      const int tiles = range.end > range.first ? ceil_div(range.end - range.first, 16) : 0,
                tile_first = range.first + 16 * n;
      if (n < tiles)
        return {tile_first, range.end, distance_row(params, key_range, last_query, tile_first),
                params.relative.num_distances};
      n -= tiles;
    }
    return {};
  }
};

// Returns the tiles of the visible keys of a block whose last query is `last_query`.
template <bool kRelative>
MH_DEVICE auto tiles_of_keys([[maybe_unused]] const AttentionParams& params, const IndexRange& visible_range,
                             [[maybe_unused]] int last_query) {
  if constexpr (kRelative) return VisibleKeyTiles{params, visible_range, last_query};
  else return RangeTiles{visible_range};
}

// The tiles of the queries in query_range; operator()(n) returns tile n. The window of a tile has the rows of r for its
// queries and the resident keys, which begin at key `first` and are in key range number `range_index`.
struct QueryTilesOfKeyRange {
  const AttentionParams& params;
  IndexRange query_range;
  int first, range_index;
  MH_DEVICE StreamedTile operator()(int n) const {
    const int tile_first = query_range.first + 16 * n;
    return {tile_first, query_range.end,
            distance_row(params, params.relative.key_ranges[range_index], tile_first + 15, first),
            params.relative.num_distances};
  }
};

// The tiles of queries for the distances (rows of r) `first` … `first` + `rows` - 1; operator()(n) returns tile n. For
// each key range, the tiles cover the queries that have an unpadded key of this range at one of these distances. The
// window of tile x has the keys at these distances: key t + x.window_row - x.first is at distance `first` from query t.
struct QueryTilesOfDistances {
  const AttentionParams& params;
  int first, rows, num_unpadded_keys;
  MH_DEVICE StreamedTile operator()(int n) const {
    const int queries = static_cast<int>(params.queries), causal_offset = static_cast<int>(params.keys) - queries;
    for (int i = 0; i < params.relative.num_key_ranges; ++i) {
      const KeyRange& key_range = params.relative.key_ranges[i];
      const IndexRange keys = intersect({0, num_unpadded_keys}, key_range);
      const int key_shift = first - distance_row(params, key_range, 0, 0), max_key_shift = key_shift + rows - 1;
      if (keys.first >= keys.end ||
          (params.causal &&
           (key_shift > causal_offset || (params.window > 0 && max_key_shift <= causal_offset - params.window))))
        continue;
      const int begin = keys.first - max_key_shift > 0 ? keys.first - max_key_shift : 0;
      const int end = keys.end - key_shift < queries ? keys.end - key_shift : queries;
      const int tiles = end > begin ? ceil_div(end - begin, 16) : 0, tile_first = begin + 16 * n;
      if (n < tiles) return {tile_first, end, tile_first + key_shift, keys.end, keys.first};
      n -= tiles;
    }
    return {};
  }
};

// Returns r as a tensor (1, heads, distances, key_size), with batch stride 0.
template <class T>
MH_DEVICE StridedTensor<const T> distance_rows(const AttentionParams& params) {
  return {static_cast<const T*>(params.relative.r), 0, params.relative.head_stride, params.relative.row_stride};
}

// The operands of kernels with resident queries and streamed keys.
template <class T, int kSize, bool kRelative>
using QueryOperands = GemmOperands<T, kSize, 1, kRelative ? 2 : 1, kRelative>;

// Returns the operands of the logits of query heads. kRelative: tensors.q is q + u, and tensors.q_v is q + v.
template <class T, int kSize, bool kRelative>
MH_DEVICE QueryOperands<T, kSize, kRelative> logit_operands(const AttentionParams& params,
                                                            const KernelTensors<T>& tensors, int64_t b, HeadRange heads,
                                                            const T* resident_smem) {
  QueryOperands<T, kSize, kRelative> operands{
      {tensors.k, b, params.k_head_of}, {tensors.q, b, nullptr}, heads, params.key_size, resident_smem};
  if constexpr (kRelative)
    operands.resident_2 = {tensors.q_v, b, nullptr}, operands.window = {distance_rows<T>(params), b, nullptr};
  return operands;
}

// The operands of a product, for the 16 resident rows of a warp's row tile.
template <class Operands>
struct RowTileOperands {
  const Operands& operands;
  const HeadMixingPlan& plan;
  const WarpPosition& warp;

  // Return addresses in shared memory for a head of a group: streamed_rows() of the streamed rows (16, kStride),
  // resident_rows() of the resident rows of the row tile (16, kStride). n: 0, or 1 for the second tensor.
  template <class T>
  MH_DEVICE const T* streamed_rows(HeadGroup<T> group, int head, int n = 0) const {
    return operands.streamed_rows(plan, group, head, n);
  }
  template <class T>
  MH_DEVICE const T* resident_rows(HeadGroup<T> group, int head, int n = 0) const {
    return operands.resident_rows(plan, group, head, n) + warp.row_tile * 16 * Operands::kStride;
  }
  // Returns the address of the rows of r, in the window of a head, for the queries of the row tile. The rows for the
  // last query come first.
  template <class T>
  MH_DEVICE const T* window(HeadGroup<T> group, int head) const {
    return operands.window_of(plan, group, head) + (warp.rows_per_block - 16 - 16 * warp.row_tile) * Operands::kStride;
  }
};

// Computes `accum` (16, 16), the products of the 16 queries of a warp's row tile and the 16 keys of a tile, for a head
// of a group, including relative positions if kRelative.
template <int kSize, bool kRelative, int kPrefetch, class Thread, class Operands, class T>
MH_DEVICE void multiply_queries(const Thread& thread, Accumulator (&accum)[2],
                                const RowTileOperands<Operands>& operands, HeadGroup<T> group, int head,
                                [[maybe_unused]] float* window_products) {
  multiply_transposed<kSize, Operands::kStride, kPrefetch>(thread, accum, operands.resident_rows(group, head),
                                                           operands.streamed_rows(group, head));
  if constexpr (kRelative)
    add_shifted<kSize, PairLayout::queries_keys, kPrefetch>(
        thread, accum, window_products, operands.resident_rows(group, head, 1), operands.window(group, head));
}

}  // namespace mh::kernels
