// The decode path of head mixing on a CPU: at most kMaxDecodeQueries queries, which read keys and values in place.
//
// Tiling: there are three steps. In the first and the last step, several threads may compute different heads.
//
// - decode_logits() computes the logits of one query head. It holds up to 64 columns of the scaled query in up to 4
//   vectors, and sums the products of these columns with each key in a vector of 16 partial sums.
// - decode_mix() computes one query after another, each for all heads: the softmax, then the mixing in chunks of 128
//   keys, which take 8 KiB for 16 heads.
// - decode_values() computes the output of one value head. It sums up to 64 columns of the output at a time, in 4
//   vectors of accumulators, over all keys.
//
// Keys and values are not copied. The scratch memory, which the steps share (head_mixing_decode_scratch_floats), holds
// mainly the logits of all heads. It takes 41 KiB for one query, 16 heads and 512 keys, while the keys and the values,
// of size 64 in bf16, take 1 MiB each.
#pragma once

#include "cpu/head_mixing/query.h"

namespace mh::kernels {

namespace {

// The keys or values of key/value head h at the positions 0 … num_visible - 1, all of which a query sees unless a
// window hides the earliest ones.
template <class T>
struct VisibleRows {
  const HeadsView<const T>& heads;
  int64_t h, num_visible;
  MH_INLINE const T* at(int64_t t) const { return heads.at(h, t); }
  // Prefetches `size` columns, from column `first` on, of position t + kPrefetchDistance of a key/value cache
  // (HeadsView::cache_row_of), whose rows are too far apart for the hardware prefetcher.
  MH_INLINE void prefetch(int64_t t, int64_t first, int64_t size) const {
    if (heads.cache_row_of != nullptr && t + kPrefetchDistance < num_visible)
      prefetch_row(at(t + kPrefetchDistance) + first, size);
  }
};

// Computes 16 * num_vectors columns, from column `first` on, of `out` (size) = Σ_s x[s] v_s, over the positions s of v.
// x: mixed probabilities of one head, 0 at positions that a window hides.
template <int num_vectors, class T>
void weighted_value_sum(const TileLayout& layout, const float* x, const VisibleRows<T>& v, int64_t first, int64_t size,
                        T* out) {
  Floats sum[num_vectors];
  for (int i = 0; i < num_vectors; ++i) sum[i] = Floats{};
  for (int64_t s = 0; s < v.num_visible; ++s) {
    const float weight = x[key_offset(layout, s)];
    const T* value = v.at(s) + first;
    v.prefetch(s, first, num_vectors * lanes);
    for (int i = 0; i < num_vectors; ++i) {
      Floats b;
      load_partial(value + i * lanes, size - first - i * lanes, b);
      sum[i] += weight * b;
    }
  }
  for (int i = 0; i < num_vectors; ++i) store_partial(sum[i], size - first - i * lanes, out + first + i * lanes);
}

// The scratch memory that the three steps of the decode path share: the logits or probabilities of every query, and
// scratch for mixing one query.
struct DecodeScratch {
  TileLayout layout;
  float *tiles, *mix_out, *matrix;  // (queries, layout.query_stride()); (max_heads, kChunkKeys); (h, hv)
  float *max_logits, *sums;         // (h): maximum logit and sum of exponentials of each query head, for one query
  MH_INLINE DecodeScratch(const AttentionParams& params, float* shared_scratch)
      : layout(layout_of_decode(params)),
        tiles(shared_scratch),
        mix_out(tiles + params.queries * layout.query_stride()),
        matrix(mix_out + layout.max_heads * kChunkKeys),
        max_logits(matrix + pad_to_lanes(params.heads * params.value_heads)),
        sums(max_logits + params.heads) {}
  MH_INLINE float* tile_of(int64_t t) const { return tiles + t * layout.query_stride(); }
};

// Computes the products of one query and the keys for `size` columns, from column `first` on, which take `num_vectors`
// vectors. Stores the products in the logits x if `first` is 0, and otherwise adds the products to x. q: address of
// column `first` of the query.
template <int num_vectors, class T>
void decode_products(const TileLayout& layout, const T* q, float scale, int64_t size, const VisibleRows<T>& k,
                     int64_t first, float* x) {
  Floats q_lanes[num_vectors];
  for (int i = 0; i < num_vectors; ++i) {
    load_partial(q + i * lanes, size - i * lanes, q_lanes[i]);
    q_lanes[i] = q_lanes[i] * scale;
  }
  const bool has_full_vectors = size == num_vectors * lanes;
  for (int64_t s = 0; s < k.num_visible; ++s) {
    const T* key = k.at(s) + first;
    k.prefetch(s, first, size);
    Floats sum{};
    for (int i = 0; i < num_vectors; ++i) {
      Floats b;
      if (has_full_vectors) load(key + i * lanes, b);
      else load_partial(key + i * lanes, size - i * lanes, b);
      sum += q_lanes[i] * b;
    }
    float& logit = x[key_offset(layout, s)];
    logit = (first > 0 ? logit : 0) + sum_of(sum);
  }
}

}  // namespace

// Computes the logits of query head j for all queries.
template <SimdLevel L, class T>
void HeadMixingLoops<L, T>::decode_logits(const AttentionParams& params, int64_t j, HeadsView<const T> q,
                                          HeadsView<const T> k, float* shared_scratch) {
  const DecodeScratch scratch(params, shared_scratch);
  for (int64_t t = 0; t < params.queries; ++t)
    for (int64_t first = 0; first < params.key_size; first += 4 * lanes) {
      const int64_t size = std::min<int64_t>(params.key_size - first, 4 * lanes);
      const auto products = size > 2 * lanes ? decode_products<4, T>
                            : size > lanes   ? decode_products<2, T>
                                             : decode_products<1, T>;
      products(scratch.layout, q.at(j, t) + first, params.scale, size,
               VisibleRows<T>{k, params.k_head(j), params.visible_end(t)}, first, scratch.tile_of(t) + j * kChunkKeys);
    }
}

template <SimdLevel L, class T>
void HeadMixingLoops<L, T>::decode_mix(const AttentionParams& params, float* lse, float* shared_scratch) {
  const DecodeScratch scratch(params, shared_scratch);
  for (int64_t t = 0; t < params.queries; ++t) {
    const Query q(params, t, 0, params.visible_end(t));
    std::fill_n(scratch.max_logits, params.heads, -INFINITY), std::fill_n(scratch.sums, params.heads, 0.0F);
    online_softmax_query(params, scratch.layout, q, scratch.tile_of(t), scratch.max_logits, scratch.sums);
    for (int64_t j = 0; j < params.heads; ++j) {
      const RowSum row_sum = add_sink(sink_of(params, j), scratch.max_logits[j], scratch.sums[j]);
      lse[j * params.queries + t] = row_sum.lse, scratch.sums[j] = row_sum.sum;
    }
    divide_by_sums(params, params.mixing_matrix + t * params.matrix_query_stride, scratch.sums, scratch.matrix);
    mix_query(params, scratch.layout, q, scratch.matrix, scratch.tile_of(t), nullptr, scratch.mix_out);
  }
}

// Computes the output of value head i for all queries.
template <SimdLevel L, class T>
void HeadMixingLoops<L, T>::decode_values(const AttentionParams& params, int64_t i, HeadsView<const T> v,
                                          HeadsView<T> out, float* shared_scratch) {
  const DecodeScratch scratch(params, shared_scratch);
  for (int64_t t = 0; t < params.queries; ++t) {
    const float* x = scratch.tile_of(t) + i * kChunkKeys;
    const VisibleRows<T> values{v, params.v_head(i), params.visible_end(t)};
    int64_t c = 0;
    for (; c + 4 * lanes <= params.value_size; c += 4 * lanes)
      weighted_value_sum<4>(scratch.layout, x, values, c, params.value_size, out.at(i, t));
    for (; c < params.value_size; c += lanes)
      weighted_value_sum<1>(scratch.layout, x, values, c, params.value_size, out.at(i, t));
  }
}

}  // namespace mh::kernels
