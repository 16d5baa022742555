// Relative positions with head mixing (RelativeParams). The caller passes q + u and q + v, each rounded to the kernels'
// type, and receives their gradients separately. A tile of 16 queries and 16 keys is within a run of keys; a window of
// r is streamed with its rows, the 31 rows of their distances, and 16 more for each further strip. The gradient of r is
// computed by a block of distances: there 16 queries and 16 distances share a window of 31 keys, and of values
// (relative.h, distance_gradient.h).
#pragma once

#include "cuda/mixed.h"

namespace mh::kernels {

// Rows in shared memory with the interface of Sliding (relative.h).
template <class T, int kSize>
struct Window {
  static constexpr int kStride = kSize + kPad;
  const T* rows;
  static MH_DEVICE int wrapped(int place) { return place; }
  MH_DEVICE const T* piece(int place) const { return rows + place * kStride; }
};

// The meaning of the rows and columns of sums (16, 16).
enum class Pairs { queries_keys, keys_queries, distances_queries };

// Computes sums += for each pair the product of its query, one of 16 rows, and its row of a window of 32: query i and
// key s have row 15 - i + s, their distance; query i and distance s have row i + s, their key.
template <int kSize, Pairs kPairs, int kAhead, class Thread, class T>
MH_DEVICE void add_shifted(const Thread& thread, Sum (&sums)[2], float* found, const T* queries, const T* window) {
  const int g = thread.lane() / 4, t = thread.lane() % 4;
  multiply_sliding<kSize, 32, kAhead>(thread, found, queries, Window<T, kSize>{window}, 0);
  MH_FOR (n, 2)
    MH_FOR (i, 4) {
      const int row = g + i / 2 * 8, column = n * 8 + 2 * t + i % 2;
      const int query = kPairs == Pairs::queries_keys ? row : column, other = row + column - query;
      const int place = (kPairs == Pairs::distances_queries ? query : 15 - query) + other;
      sums[n].x[i] += found[query * kProductStride<32> + place];
    }
}

// The tiles of keys that queries up to `last` see, each within a run.
struct SeenKeys {
  const AttentionParams& a;
  KeyRange seen;
  int last;
  MH_DEVICE MixedTile operator()(int n) const {
    for (int i = 0; i < a.relative.num_runs; ++i) {
      const Run& run = a.relative.runs[i];
      const KeyRange part = within(seen, run);
      const int tiles = part.end > part.first ? (part.end - part.first + 15) / 16 : 0, from = part.first + 16 * n;
      if (n < tiles) return {from, part.end, distance_row(a, run, last, from), a.relative.distances};
      n -= tiles;
    }
    return {};
  }
};

template <bool kRelative>
MH_DEVICE auto tiles_of_keys([[maybe_unused]] const AttentionParams& a, const KeyRange& seen,
                             [[maybe_unused]] int last) {
  if constexpr (kRelative) return SeenKeys{a, seen, last};
  else return Tiles{seen};
}

// The tiles of queries that see keys of a run from `first` on.
struct SeeingQueries {
  const AttentionParams& a;
  KeyRange seeing;
  int first, run;
  MH_DEVICE MixedTile operator()(int n) const {
    const int from = seeing.first + 16 * n;
    return {from, seeing.end, distance_row(a, a.relative.runs[run], from + 15, first), a.relative.distances};
  }
};

// The tiles of queries that have one of `rows` distances, rows first … first + rows - 1 of r, to one of `real` keys;
// for each run. Query t has the distance of row `first` to key t + window - from.
struct QueriesOfDistances {
  const AttentionParams& a;
  int first, rows, real;
  MH_DEVICE MixedTile operator()(int n) const {
    const int queries = static_cast<int>(a.queries), offset = static_cast<int>(a.keys) - queries;
    for (int i = 0; i < a.relative.num_runs; ++i) {
      const Run& run = a.relative.runs[i];
      const KeyRange keys = within({0, real}, run);
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
MH_DEVICE Rows<const T> rows_of_distances(const AttentionParams& a) {
  return {static_cast<const T*>(a.relative.rows), 0, a.relative.head_stride, a.relative.row_stride};
}

// The operands of passes with resident queries and streamed keys.
template <class T, int kSize, bool kRelative>
using MeetingOfQueries = Meeting<T, kSize, 1, kRelative ? 2 : 1, kRelative>;

// Returns the operands of the logits of heads first … end - 1. kRelative: x.q is q + u, and x.shifted q + v.
template <class T, int kSize, bool kRelative>
MH_DEVICE MeetingOfQueries<T, kSize, kRelative> logits_of_queries(const AttentionParams& a, const KernelTensors<T>& x,
                                                                  int64_t b, int first, int end, const T* kept) {
  MeetingOfQueries<T, kSize, kRelative> logits{{x.k, b, a.key_heads}, {x.q, b, nullptr}, first, end, a.key_size, kept};
  if constexpr (kRelative)
    logits.staying_too = {x.shifted, b, nullptr}, logits.window = {rows_of_distances<T>(a), b, nullptr};
  return logits;
}

// Returns the rows of a head's window for 16 queries of a strip, those of the last query first.
template <class Meets, class T>
MH_DEVICE const T* window_of_queries(const Meets& logits, const MixedPlan& plan, const MixedPlace& at, const T* place,
                                     int begin, int head) {
  return logits.window_of(plan, place, begin, head) + (at.rows - 16 - 16 * at.strip) * Meets::kStride;
}

// Computes sums = products of 16 queries of a strip and 16 keys, for a head.
template <int kSize, bool kRelative, int kAhead, class Thread, class Meets, class T>
MH_DEVICE void multiply_queries(const Thread& thread, Sum (&sums)[2], const Meets& logits, const MixedPlan& plan,
                                const MixedPlace& at, const T* place, int begin, int head,
                                [[maybe_unused]] float* found) {
  const int of_strip = at.strip * 16 * Meets::kStride;
  multiply_turned<kSize, Meets::kStride, kAhead>(thread, sums, logits.stays(plan, place, begin, head) + of_strip,
                                                 logits.comes(plan, place, begin, head));
  if constexpr (kRelative)
    add_shifted<kSize, Pairs::queries_keys, kAhead>(thread, sums, found,
                                                    logits.stays(plan, place, begin, head, 1) + of_strip,
                                                    window_of_queries(logits, plan, at, place, begin, head));
}

}  // namespace mh::kernels
