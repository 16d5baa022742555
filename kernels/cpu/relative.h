// Relative positions (RelativeParams) for a tile of m queries on a CPU. The distances between these queries, the first
// of which is query `first`, and n consecutive keys of a key range are n + m - 1 consecutive rows of r. In the products
// of the queries with these rows, (m, n + m - 1), key number s of the n keys is in column m - 1 - i + s of the row of
// query `first + i`: the relative shift (Dai et al. 2019, appendix B) is an offset into this row.
#pragma once

#include <algorithm>

#include "attention_params.h"
#include "ceil_div.h"
#include "cpu/logit_terms.h"
#include "cpu/products.h"

namespace mh::kernels {

// The keys of a key range that a tile of queries sees, and the rows of r that belong to the distances of these keys. If
// `num_keys <= 0`, the tile sees no key of the key range.
struct DistanceRange {
  int64_t first_key, num_keys, first_row, num_rows;
};

// Returns the keys of `key_range` among the keys [key_begin, key_end), and the rows of r that belong to the distances
// between these keys and the m queries from query `first` on. `queries`: number of queries of the batch row.
MH_INLINE DistanceRange distance_range(const KeyRange& key_range, int64_t queries, int64_t first, int64_t m,
                                       int64_t key_begin, int64_t key_end) {
  const int64_t skipped_keys = std::max<int64_t>(0, key_begin - key_range.first_key);
  const int64_t num_keys = std::min(key_end - key_range.first_key, key_range.num_keys) - skipped_keys;
  return {key_range.first_key + skipped_keys, num_keys, key_range.first_row + queries - first - m + skipped_keys,
          num_keys + m - 1};
}

// Returns the row stride, in floats, of the products of `queries` queries with the rows of r that belong to their
// distances to `keys` keys.
MH_INLINE int64_t distance_row_stride(int64_t keys, int64_t queries) { return round_up(keys + queries, lanes) + lanes; }

// Adds to `to` (size) the sum of the m rows of `rows` (m, size), multiplied by `factor`.
MH_INLINE void add_row_sum(const float* rows, int64_t m, int64_t size, float factor, float* to) {
  for (int64_t i = 0; i < size; i += lanes) {
    Floats sum{}, total;
    for (int64_t r = 0; r < m; ++r) {
      Floats v;
      load(rows + r * size + i, v);
      sum += v;
    }
    load(to + i, total);
    total = total + sum * factor;
    store(total, to + i);
  }
}

}  // namespace mh::kernels
