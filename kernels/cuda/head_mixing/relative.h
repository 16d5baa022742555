// Relative positions with head mixing (RelativeParams). The caller passes q + u and q + v, each rounded to the kernels'
// type, and receives their gradients separately. A tile of 16 queries and 16 keys is within a run of keys; a window of
// r is streamed with its rows, the 31 rows of their distances, and 16 more for each further strip. The gradient of r is
// computed by a block of distances: there 16 queries and 16 distances share a window of 31 keys, and of values
// (relative.h, distance_gradient.h).
#pragma once

#include "cuda/head_mixing/mixing.h"

namespace mh::kernels {

// Rows in shared memory with the interface of Sliding (relative.h).
template <class T, int kSize>
struct Window {
  static constexpr int kStride = kSize + kPad;
  const T* rows;
  static MH_DEVICE int wrap(int row) { return row; }
  MH_DEVICE const T* rows_16(int row) const { return rows + row * kStride; }
};

// The meaning of the rows and columns of sums (16, 16).
enum class PairLayout { queries_keys, keys_queries, distances_queries };

// Computes sums += for each pair the product of its query, one of 16 rows, and its row of a window of 32: query i and
// key s have row 15 - i + s, their distance; query i and distance s have row i + s, their key.
template <int kSize, PairLayout kLayout, int kPrefetch, class Thread, class T>
MH_DEVICE void add_shifted(const Thread& thread, Accumulator (&sums)[2], float* window_products, const T* queries,
                           const T* window) {
  const int g = thread.lane() / 4, t = thread.lane() % 4;
  multiply_sliding<kSize, 32, kPrefetch>(thread, window_products, queries, Window<T, kSize>{window}, 0);
  MH_FOR (n, 2)
    MH_FOR (i, 4) {
      const int row = g + i / 2 * 8, column = n * 8 + 2 * t + i % 2;
      const int query = kLayout == PairLayout::queries_keys ? row : column, other = row + column - query;
      const int window_row = (kLayout == PairLayout::distances_queries ? query : 15 - query) + other;
      sums[n].x[i] += window_products[query * kProductStride<32> + window_row];
    }
}

// The tiles of keys that queries up to `last` see, each within a run.
struct VisibleKeyTiles {
  const AttentionParams& a;
  KeyRange visible;
  int last;
  MH_DEVICE StreamedTile operator()(int n) const {
    for (int i = 0; i < a.relative.num_runs; ++i) {
      const Run& run = a.relative.runs[i];
      const KeyRange range = intersect(visible, run);
      const int tiles = range.end > range.first ? (range.end - range.first + 15) / 16 : 0, from = range.first + 16 * n;
      if (n < tiles) return {from, range.end, distance_row(a, run, last, from), a.relative.distances};
      n -= tiles;
    }
    return {};
  }
};

template <bool kRelative>
MH_DEVICE auto tiles_of_keys([[maybe_unused]] const AttentionParams& a, const KeyRange& visible,
                             [[maybe_unused]] int last) {
  if constexpr (kRelative) return VisibleKeyTiles{a, visible, last};
  else return RangeTiles{visible};
}

// The tiles of queries that see keys of a run from `first` on.
struct QueryTilesOfRun {
  const AttentionParams& a;
  KeyRange query_range;
  int first, run;
  MH_DEVICE StreamedTile operator()(int n) const {
    const int from = query_range.first + 16 * n;
    return {from, query_range.end, distance_row(a, a.relative.runs[run], from + 15, first), a.relative.distances};
  }
};

// The tiles of queries that have one of `rows` distances, rows first … first + rows - 1 of r, to one of `real_keys`
// keys; for each run. Query t has the distance of row `first` to key t + window - from.
struct QueryTilesOfDistances {
  const AttentionParams& a;
  int first, rows, real_keys;
  MH_DEVICE StreamedTile operator()(int n) const {
    const int queries = static_cast<int>(a.queries), offset = static_cast<int>(a.keys) - queries;
    for (int i = 0; i < a.relative.num_runs; ++i) {
      const Run& run = a.relative.runs[i];
      const KeyRange keys = intersect({0, real_keys}, run);
      const int lead = first - distance_row(a, run, 0, 0), last = lead + rows - 1;
      if (keys.first >= keys.end || (a.causal && (lead > offset || (a.window > 0 && last <= offset - a.window))))
        continue;
      const int begin = keys.first - last > 0 ? keys.first - last : 0;
      const int end = keys.end - lead < queries ? keys.end - lead : queries;
      const int tiles = end > begin ? (end - begin + 15) / 16 : 0, from = begin + 16 * n;
      if (n < tiles) return {from, end, from + lead, keys.end, keys.first};
      n -= tiles;
    }
    return {};
  }
};

template <class T>
MH_DEVICE Rows<const T> distance_rows(const AttentionParams& a) {
  return {static_cast<const T*>(a.relative.rows), 0, a.relative.head_stride, a.relative.row_stride};
}

// The operands of passes with resident queries and streamed keys.
template <class T, int kSize, bool kRelative>
using QueryOperands = GemmOperands<T, kSize, 1, kRelative ? 2 : 1, kRelative>;

// Returns the operands of the logits of heads first … end - 1. kRelative: x.q is q + u, and x.q_v q + v.
template <class T, int kSize, bool kRelative>
MH_DEVICE QueryOperands<T, kSize, kRelative> logit_operands(const AttentionParams& a, const KernelTensors<T>& x,
                                                            int64_t b, int first, int end, const T* resident_memory) {
  QueryOperands<T, kSize, kRelative> logits{{x.k, b, a.key_heads}, {x.q, b, nullptr}, first, end, a.key_size,
                                            resident_memory};
  if constexpr (kRelative) logits.resident_2 = {x.q_v, b, nullptr}, logits.window = {distance_rows<T>(a), b, nullptr};
  return logits;
}

// Returns the rows of a head's window for 16 queries of a strip, those of the last query first.
template <class Operands, class T>
MH_DEVICE const T* window_of_queries(const Operands& logits, const HeadMixingPlan& plan, const WarpPosition& warp,
                                     const T* stage, int begin, int head) {
  return logits.window_of(plan, stage, begin, head) + (warp.rows - 16 - 16 * warp.strip) * Operands::kStride;
}

// Computes sums = products of 16 queries of a strip and 16 keys, for a head.
template <int kSize, bool kRelative, int kPrefetch, class Thread, class Operands, class T>
MH_DEVICE void multiply_queries(const Thread& thread, Accumulator (&sums)[2], const Operands& logits,
                                const HeadMixingPlan& plan, const WarpPosition& warp, const T* stage, int begin,
                                int head, [[maybe_unused]] float* window_products) {
  const int strip_offset = warp.strip * 16 * Operands::kStride;
  multiply_transposed<kSize, Operands::kStride, kPrefetch>(
      thread, sums, logits.resident_rows(plan, stage, begin, head) + strip_offset,
      logits.streamed_rows(plan, stage, begin, head));
  if constexpr (kRelative)
    add_shifted<kSize, PairLayout::queries_keys, kPrefetch>(
        thread, sums, window_products, logits.resident_rows(plan, stage, begin, head, 1) + strip_offset,
        window_of_queries(logits, plan, warp, stage, begin, head));
}

}  // namespace mh::kernels
