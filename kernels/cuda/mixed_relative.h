// Relative positions of mixed heads (Relative in policy.h): the caller gives q + u and q + v, each a tensor, and takes
// their gradients apart. Beside the rows that meet in q + u and k streams a window of r: the rows of 16 queries and 16
// keys are 31 that follow one another, and of further strips 16 more each (relative.h).
#pragma once

#include "cuda/mixed.h"

namespace mh::kernels {

// Sums of two gradients and of what comes for them have place for sizes so large.
constexpr int kMostMixedRelative = 128;

// Rows in shared memory as those that slide by.
template <class T, int kSize>
struct Window {
  static constexpr int kStride = kSize + kPad;
  const T* rows;
  static MH_DEVICE int wrapped(int place) { return place; }
  MH_DEVICE const T* piece(int place) const { return rows + place * kStride; }
};

// What the rows of sums (16, 16) are, and their columns.
enum class Pairs { queries_keys, keys_queries, distances_queries };

// sums += products of 16 queries, the rows, and those of a window of 32 that each pair has. A key's is 15 - i further
// for query i, a distance's is i further (distance_gradient.h).
template <int kSize, Pairs kPairs, class Thread, class T>
MH_DEVICE void add_shifted(const Thread& thread, Sum (&sums)[2], float* found, const T* rows, const T* window) {
  const int g = thread.lane() / 4, t = thread.lane() % 4;
  multiply_sliding<kSize, 32>(thread, found, rows, Window<T, kSize>{window}, 0);
  MH_FOR (n, 2)
    MH_FOR (i, 4) {
      const int row = g + i / 2 * 8, column = n * 8 + 2 * t + i % 2;
      const int query = kPairs == Pairs::queries_keys ? row : column, other = row + column - query;
      sums[n].x[i] +=
          found[query * kProductStride<32> + (kPairs == Pairs::distances_queries ? query : 15 - query) + other];
    }
}

// Tiles of keys that queries up to `last` see, each within a run.
template <bool kRelative>
struct SeenKeys {
  const MixedCall& a;
  KeyRange seen;
  int last;
  MH_DEVICE MixedTile operator()(int n) const {
    if constexpr (kRelative) {
      for (int run = 0; run < a.positions.count; ++run) {
        const KeyRange part = within(seen, a.positions.runs[run]);
        const int tiles = part.end > part.first ? (part.end - part.first + 15) / 16 : 0, from = part.first + 16 * n;
        if (n < tiles) return {from, part.end, distance_row(a, a.positions.runs[run], last, from), a.positions.distances};
        n -= tiles;
      }
      return {0, 0};
    } else {
      return {seen.first + 16 * n, seen.end};
    }
  }
};

// Tiles of queries that see keys from `first` on, of a run.
template <bool kRelative>
struct SeeingQueries {
  const MixedCall& a;
  KeyRange seeing;
  int first, run;
  MH_DEVICE MixedTile operator()(int n) const {
    const int from = seeing.first + 16 * n;
    if constexpr (kRelative)
      return {from, seeing.end, distance_row(a, a.positions.runs[run], from + 15, first), a.positions.distances};
    else return {from, seeing.end};
  }
};

template <class T>
MH_DEVICE Rows<const T> rows_of_distances(const MixedCall& a) {
  return {static_cast<const T*>(a.positions.rows), 0, a.positions.head, a.positions.position};
}

// Those of the block's rows that a strip's products with the window begin with, where rows are queries.
MH_DEVICE int window_of_queries(const MixedPlace& at) { return at.rows - 16 - 16 * at.strip; }

}  // namespace mh::kernels
