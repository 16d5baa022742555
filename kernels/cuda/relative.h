// Relative positions (RelativeParams) for tiles of queries and keys. A tile of keys is within one key range, so the
// distances between m queries and n keys are m + n - 1 consecutive rows of r. The products of q + v with these rows go
// to shared memory in fp32. For a warp's 16 queries, the product for query i and key s is in column 15 - i + s of row
// i: the relative shift (Dai et al. 2019, appendix B) is an offset into the row of the query.
#pragma once

#include <type_traits>

#include "ceil_div.h"
#include "cuda/probability.h"
#include "cuda/tile.h"

namespace mh::kernels {

// Returns the keys of a key range that are in the range `visible_range`.
MH_DEVICE IndexRange intersect(const IndexRange& visible_range, const KeyRange& key_range) {
  const int first = static_cast<int>(key_range.first_key),
            end = static_cast<int>(key_range.first_key + key_range.num_keys);
  return {first > visible_range.first ? first : visible_range.first, end < visible_range.end ? end : visible_range.end};
}

// Returns the index of the row of r, or of the column of the position bias, for the distance from a query to a key of a
// key range. For masked pairs, and for queries or keys of a tile that do not exist, r may have no row of this index.
MH_DEVICE int distance_row(const AttentionParams& params, const KeyRange& key_range, int query, int key) {
  return static_cast<int>(key_range.first_row + params.queries - 1 - query + key - key_range.first_key);
}

// The key ranges of relative positions or of a position bias, and the number of their distances.
struct DistanceRanges {
  const KeyRange* key_ranges;
  int num_key_ranges, num_distances;
};
MH_DEVICE DistanceRanges ranges_of(const RelativeParams& relative) {
  return {relative.key_ranges, relative.num_key_ranges, relative.num_distances};
}
MH_DEVICE DistanceRanges ranges_of(const PositionBiasParams& position_bias) {
  return {position_bias.key_ranges, position_bias.num_key_ranges, position_bias.num_distances};
}

// Returns the column of the position bias for the distance from query 0 to a key; 0 for a key that does not exist, or
// without a position bias.
MH_DEVICE int distance_column_of_key(const AttentionParams& params, int key) {
  for (int i = 0; i < params.position_bias.num_key_ranges; ++i) {
    const KeyRange& key_range = params.position_bias.key_ranges[i];
    if (key >= key_range.first_key && key < key_range.first_key + key_range.num_keys)
      return distance_row(params, key_range, 0, key);
  }
  return 0;
}

// Returns r of a head as a matrix (distances, key_size).
template <class T>
MH_DEVICE GlobalMatrix<const T> distances_of_head(const AttentionParams& params, int64_t head) {
  return {static_cast<const T*>(params.relative.r) + head * params.relative.head_stride, params.relative.row_stride,
          params.relative.num_distances, params.key_size, params.has_aligned_rows};
}

// Divides each key range into tiles of `size` keys, numbered over all key ranges, and returns tile number
// `first` / `size` as the range from its first key to the end of its key range. Writes the index of the key range to
// `range_index`. first: a multiple of `size`. Past the last tile the range is empty and `range_index` is the number of
// key ranges.
MH_DEVICE IndexRange tile_of_key_ranges(const AttentionParams& params, int first, int size, int& range_index) {
  for (range_index = 0; range_index < params.relative.num_key_ranges; ++range_index) {
    const int begin = static_cast<int>(params.relative.key_ranges[range_index].first_key),
              keys = static_cast<int>(params.relative.key_ranges[range_index].num_keys);
    if (first < keys) return {begin + first, begin + keys};
    first -= round_up(keys, size);
  }
  return {0, 0};
}

// Sets the products of masked pairs to -inf. products (16, 8 kColumnFragments): rows are 16 consecutive distances,
// columns are queries from query i on; queries from query `end` on are masked. Row 0 in the column of query t belongs
// to key t + key_shift. unpadded_keys: the keys of the key range that are not padding. Called by all lanes of a warp.
template <bool kLogitTerms = false, int kColumnFragments, class Thread>
MH_DEVICE void apply_distance_mask(const Thread& thread, const AttentionParams& params, const IndexRange& unpadded_keys,
                                   int end, int i, int key_shift, Accumulator (&products)[kColumnFragments]) {
  const int causal_offset = static_cast<int>(params.keys - params.queries), query_end = i + 8 * kColumnFragments;
  if ((!kLogitTerms || params.causal || is_in_window(params, key_shift, key_shift + 15)) && query_end <= end &&
      i + key_shift >= unpadded_keys.first && query_end + key_shift + 15 <= unpadded_keys.end &&
      (!params.causal || (key_shift + 15 <= causal_offset &&
                          (params.window == 0 || key_shift > causal_offset - static_cast<int>(params.window)))))
    return;
  const int g = thread.lane() / 4, t = thread.lane() % 4;
  MH_FOR (n, kColumnFragments)
    MH_FOR (e, 4) {
      const int query = i + n * 8 + 2 * t + e % 2, key = query + key_shift + g + e / 2 * 8;
      if (query >= end || key < unpadded_keys.first || !is_visible<kLogitTerms>(params, unpadded_keys.end, query, key))
        products[n].x[e] = -INFINITY;
    }
}

// Sizes in kernels with relative positions, chosen so that shared memory does not exceed 163 KiB, the limit for a block
// on an A100: numbers of warps of a block of the backward pass, of rows of a streamed tile, and of pipeline stages.
template <class T, int kSize>
constexpr int kRelativeWarps = kSize * sizeof(T) <= 256   ? 4
                               : kSize * sizeof(T) <= 512 ? 2
                                                          : 1;
template <class T, int kSize>
constexpr int kRelativeTileRows = kSize * sizeof(T) <= 256 ? 32 : 16;
template <class T, int kSize>
constexpr int kRelativeStages = kSize * sizeof(T) <= 768 ? 2 : 1;

// A row window in shared memory that slides over a matrix. The window has kWindowRows rows and is advanced by kStep
// rows at a time; with two pipeline stages the next kStep rows are loaded while the window is read. The rows are in a
// ring buffer, so that each row is loaded once. kWindowRows and kStep are multiples of 16. A ring_row is an index of a
// row in the ring buffer.
template <class T, int kSize, int kWindowRows, int kStep>
struct SlidingWindow {
  static constexpr int kStride = kSize + kPad, kRows = kWindowRows + (kRelativeStages<T, kSize> == 2 ? kStep : 0);
  T rows[kRows * kStride];

  // Returns ring_row modulo kRows, for ring_row from -kRows to 2 kRows - 1.
  static MH_DEVICE int wrap(int ring_row) {
    return ring_row < 0 ? ring_row + kRows : ring_row < kRows ? ring_row : ring_row - kRows;
  }
  // Returns the address of 16 rows from `ring_row` on; `ring_row` must be a multiple of 16.
  MH_DEVICE const T* rows_at(int ring_row) const { return rows + wrap(ring_row) * kStride; }
  // Loads kNumRows rows of a matrix from row `first` on into the ring buffer from `ring_row` on; zeros for rows outside
  // the matrix. Asynchronous like load_rows(). Called by all threads of a block.
  template <int kNumRows, class Thread>
  MH_DEVICE void load(const Thread& thread, int ring_row, GlobalMatrix<const T> matrix, int first) {
    load_rows<kSize>(thread, block_of(thread), rows, matrix, first, kNumRows,
                     [&](int r) { return wrap(wrap(ring_row) + r) * kStride; });
  }
  // Loads kNumRows rows of r of a head from row `first` on into the ring buffer from `ring_row` on. Called by all
  // threads of a block.
  template <int kNumRows, class Thread>
  MH_DEVICE void load_distances(const Thread& thread, int ring_row, const AttentionParams& params, int64_t head,
                                int first) {
    load<kNumRows>(thread, ring_row, distances_of_head<T>(params, head), first);
  }
};

// Row stride, in floats, of products (16, kColumns) in shared memory; 8 floats of padding avoid bank conflicts.
template <int kColumns>
constexpr int kProductStride = kColumns + 8;

// Computes the products of `rows` (16, kSize) with the kColumns rows of `row_window` from ring_row on, and writes them
// to `products` (16, kColumns). `rows` and `products` are in shared memory. Called by all lanes of a warp.
template <int kSize, int kColumns, int kMaxPrefetch = 4, class Thread, class T, class RowWindow>
MH_DEVICE void multiply_sliding(const Thread& thread, float* products, const T* rows, const RowWindow& row_window,
                                int ring_row) {
  const int g = thread.lane() / 4, t = thread.lane() % 4;
  Accumulator accum[kColumns / 8];
  const T* row_blocks[kColumns / 16];
  [[maybe_unused]] constexpr int kPrefetch = sizeof(T) == 4 && kMaxPrefetch > 1 ? 1 : kMaxPrefetch;
  MH_FOR (n, kColumns / 16) row_blocks[n] = row_window.rows_at(RowWindow::wrap(ring_row) + n * 16);
  MH_UNROLL_PREFETCH
  for (int c = 0; c < kSize; c += 16) {
    FragmentA<T> frag_a;
    load(thread, frag_a, rows + c, RowWindow::kStride);
    MH_FOR (n, kColumns / 16) {
      FragmentB<T> frag_b[2];
      load_transposed(thread, frag_b, row_blocks[n] + c, RowWindow::kStride);
      multiply_accurate(thread, accum[2 * n], frag_a, frag_b[0]);
      multiply_accurate(thread, accum[2 * n + 1], frag_a, frag_b[1]);
    }
  }
  thread.warp_barrier();  // until all lanes have read the previous products
  MH_FOR (n, kColumns / 8)
    MH_FOR (r, 2)
      store_pair(thread, products + (g + 8 * r) * kProductStride<kColumns> + n * 8 + 2 * t, accum[n].x[2 * r],
                 accum[n].x[2 * r + 1]);
  thread.warp_barrier();
}

// Adds Σ_s pairs[i, s] row(i, s) to row i of `accum` (16, 8 kColumnFragments), for 16 queries i and 8 kKeyFragments
// keys s. Here row(i, s) is the row of r for the distance from query i to key s, from column `column` on. `pairs` is
// rounded to T. The row of r for the last query and the first key is at ring_row of `row_window`. scratch: shared
// memory of the warp for products (16, 16 + 8 kKeyFragments), overwritten. Called by all lanes of a warp.
template <class T, int kColumnFragments, int kKeyFragments, class Thread, class RowWindow>
MH_DEVICE void multiply_add_sliding(const Thread& thread, Accumulator (&accum)[kColumnFragments],
                                    const Accumulator (&pairs)[kKeyFragments], float* scratch,
                                    const RowWindow& row_window, int ring_row, int column) {
  constexpr int kKeys = 8 * kKeyFragments, kColumns = 16 + kKeys, kProductRowStride = kProductStride<kColumns>;
  const int g = thread.lane() / 4, t = thread.lane() % 4;
  thread.warp_barrier();
  MH_FOR (n, kKeys / 8)
    MH_FOR (i, 4) {
      const int row = g + i / 2 * 8;
      scratch[row * kProductRowStride + 15 - row + n * 8 + 2 * t + i % 2] = pairs[n].x[i];
    }
  thread.warp_barrier();
  MH_FOR (m, kColumns / 16) {
    Accumulator distance_pairs[2];
    MH_FOR (half, 2)
      MH_FOR (i, 4) {
        const int row = g + i / 2 * 8, distance = m * 16 + half * 8 + 2 * t + i % 2, key = distance - 15 + row;
        distance_pairs[half].x[i] = key >= 0 && key < kKeys ? scratch[row * kProductRowStride + distance] : 0;
      }
    FragmentA<T> frag_a;
    round_to_fragment_a(thread, frag_a, distance_pairs[0], distance_pairs[1]);
    const T* block_rows = row_window.rows_at(RowWindow::wrap(ring_row) + m * 16) + column;
    MH_UNROLL
    for (int n = 0; n < kColumnFragments; n += 2) {
      FragmentB<T> frag_b[2];
      load(thread, frag_b, block_rows + n * 8, RowWindow::kStride);
      multiply(thread, accum[n], frag_a, frag_b[0]);
      multiply(thread, accum[n + 1], frag_a, frag_b[1]);
    }
  }
}

// Replaces q (kRows, kSize) by q + u, and writes q + v to q_v (kRows, kSize), rounded to T, in shared memory. Called by
// all threads of a block. Each thread accesses only the vectors of q that it has loaded itself with load_tile(), so
// that after wait_group() no barrier is needed.
template <int kRows, int kSize, class Thread, class T>
MH_DEVICE void add_biases(const Thread& thread, const AttentionParams& params, int64_t head, T* q, T* q_v) {
  constexpr int kVectorSize = 16 / static_cast<int>(sizeof(T));
  const float *u = params.relative.u + head * params.key_size, *v = params.relative.v + head * params.key_size;
  for_each_vector<T, kSize>(block_of(thread), kRows, [&](int row, int from) {
    const int offset = row * (kSize + kPad);
    MH_UNROLL
    for (int c = from; c < from + kVectorSize; c += 2) {
      const bool is_in_size[2] = {c < params.key_size, c + 1 < params.key_size};
      const float x = to_float(thread, q[offset + c]), y = to_float(thread, q[offset + c + 1]);
      store_pair(thread, q + offset + c, x + (is_in_size[0] ? u[c] : 0), y + (is_in_size[1] ? u[c + 1] : 0));
      store_pair(thread, q_v + offset + c, x + (is_in_size[0] ? v[c] : 0), y + (is_in_size[1] ? v[c + 1] : 0));
    }
  });
}

// The additional shared memory that relative positions take in a block with 16 resident queries per warp and streamed
// tiles of kKeys keys.
template <class T, int kSize, int kWarps, int kKeys>
struct QueryRelativeSmem {
  static constexpr int kQueries = 16 * kWarps, kWindowRows = kQueries + kKeys, kColumns = 16 + kKeys;
  static constexpr int kProductRowStride = kProductStride<kColumns>;
  using Window = SlidingWindow<T, kSize, kWindowRows, kKeys>;
  alignas(16) T q_v[kQueries * Window::kStride];                // q + v
  alignas(16) Window rows;                                      // rows of r
  alignas(16) float products[kWarps * 16 * kProductRowStride];  // of each warp: products of q + v with rows of r

  // Load the rows of r for the queries from query `first` on and the tile of keys from key `key` on:
  // load_first_window() loads all these rows, for the first tile of a key range, at ring_row 0; advance_window() loads
  // the rows that the previous tile of keys did not need.
  template <class Thread>
  MH_DEVICE void load_first_window(const Thread& thread, const AttentionParams& params, int64_t head,
                                   const KeyRange& key_range, int first, int key) {
    rows.template load_distances<kWindowRows>(thread, 0, params, head,
                                              distance_row(params, key_range, first + kQueries - 1, key));
  }
  template <class Thread>
  MH_DEVICE void advance_window(const Thread& thread, const AttentionParams& params, int64_t head,
                                const KeyRange& key_range, int first, int key, int ring_row) {
    rows.template load_distances<kKeys>(thread, ring_row + kWindowRows - kKeys, params, head,
                                        distance_row(params, key_range, first - 1, key));
  }
  // Returns the ring_row of the next tile of keys.
  static MH_DEVICE int next_ring_row(int ring_row) { return Window::wrap(ring_row + kKeys); }

  // Adds the position term (q + v) · r[distance] to a warp's products of queries and keys, `accum` (16, kKeys).
  template <class Thread>
  MH_DEVICE void add_position_term(const Thread& thread, Accumulator (&accum)[kKeys / 8], int ring_row) {
    const int g = thread.lane() / 4, t = thread.lane() % 4;
    float* const window_products = warp_products(thread);
    multiply_sliding<kSize, kColumns>(thread, window_products, q_v + thread.warp() * 16 * Window::kStride, rows,
                                      warp_ring_row(thread, ring_row));
    MH_FOR (n, kKeys / 8)
      MH_FOR (i, 4) {
        const int row = g + i / 2 * 8;
        accum[n].x[i] += window_products[row * kProductRowStride + 15 - row + n * 8 + 2 * t + i % 2];
      }
  }
  // Adds Σ_s pairs[i, s] row(i, s) to row i of `accum` (16, 8 kColumnFragments), for a warp's 16 queries i and kKeys
  // keys s. Here row(i, s) is the row of r for their distance, from column `column` on. `pairs` is rounded to T.
  template <int kColumnFragments, class Thread>
  MH_DEVICE void multiply_add(const Thread& thread, Accumulator (&accum)[kColumnFragments],
                              const Accumulator (&pairs)[kKeys / 8], int ring_row, int column) {
    multiply_add_sliding<T>(thread, accum, pairs, warp_products(thread), rows, warp_ring_row(thread, ring_row), column);
  }
  template <class Thread>
  MH_DEVICE float* warp_products(const Thread& thread) {
    return products + thread.warp() * 16 * kProductRowStride;
  }

 private:
  // Returns the ring_row of the first row of r that a warp uses, for its last query and the first key.
  template <class Thread>
  static MH_DEVICE int warp_ring_row(const Thread& thread, int ring_row) {
    return ring_row + kQueries - 16 - 16 * thread.warp();
  }
};

// The additional shared memory that relative positions take in a block with 16 resident keys per warp and streamed
// tiles of kQueries queries. Later queries use earlier rows of r.
template <class T, int kSize, int kWarps, int kQueries>
struct KeyRelativeSmem {
  static constexpr int kKeys = 16 * kWarps, kWindowRows = kKeys + kQueries, kProductRowStride = kProductStride<32>;
  using Window = SlidingWindow<T, kSize, kWindowRows, kQueries>;
  alignas(16) T q_v[kQueries * Window::kStride];                // q + v
  alignas(16) Window rows;                                      // rows of r
  alignas(16) float products[kWarps * 16 * kProductRowStride];  // of each warp: products of q + v with rows of r

  // Load the rows of r for the keys from key `first` on and the tile of queries from query `query` on:
  // load_first_window() loads all these rows, for the first tile, at ring_row 0; advance_window() loads the rows that
  // the previous tile of queries did not need.
  template <class Thread>
  MH_DEVICE void load_first_window(const Thread& thread, const AttentionParams& params, int64_t head,
                                   const KeyRange& key_range, int first, int query) {
    rows.template load_distances<kWindowRows>(thread, 0, params, head,
                                              distance_row(params, key_range, query + kQueries - 1, first));
  }
  template <class Thread>
  MH_DEVICE void advance_window(const Thread& thread, const AttentionParams& params, int64_t head,
                                const KeyRange& key_range, int first, int query, int ring_row) {
    rows.template load_distances<kQueries>(thread, ring_row, params, head,
                                           distance_row(params, key_range, query + kQueries - 1, first));
  }
  // Returns the ring_row of the next tile of queries.
  static MH_DEVICE int next_ring_row(int ring_row) { return Window::wrap(ring_row - kQueries); }

  // Adds the position term (q + v) · r[distance] to a warp's transposed products, `accum` (16 keys, kQueries).
  template <class Thread>
  MH_DEVICE void add_position_term(const Thread& thread, Accumulator (&accum)[kQueries / 8], int ring_row) {
    const int g = thread.lane() / 4, t = thread.lane() % 4;
    float* const window_products = products + thread.warp() * 16 * kProductRowStride;
    MH_FOR (m, kQueries / 16) {
      multiply_sliding<kSize, 32>(thread, window_products, q_v + m * 16 * Window::kStride, rows,
                                  ring_row + kQueries - 16 - 16 * m + 16 * thread.warp());
      MH_FOR (n, 2)
        MH_FOR (i, 4) {
          const int query = n * 8 + 2 * t + i % 2;
          accum[2 * m + n].x[i] += window_products[query * kProductRowStride + 15 - query + g + i / 2 * 8];
        }
    }
  }
};

// Takes the place of QueryRelativeSmem and KeyRelativeSmem in kernels without relative positions; has no shared memory.
struct NoRelativeSmem {
  static MH_DEVICE int next_ring_row(int ring_row) { return ring_row; }
};

}  // namespace mh::kernels
