// The gradients with respect to distances in attention without head mixing: of r, the relative position vectors
// (RelativeParams), and of the position bias (PositionBiasParams).
//
// Tiling: a block computes the gradient of 16 rows of r per warp. For every key range that uses these rows the block
// loops over tiles of queries. Within a key range a query t and a row ρ of r determine one key, so 16 queries and 16
// rows involve 31 keys. The products of the queries with these keys go to shared memory, where the product of query t
// with the key of row ρ is in column t + ρ; t and ρ are counted from the first query and the first row of the tile.
// Nothing is accumulated in global memory. A block for the position bias does the same for 16 columns of the bias per
// warp, without r and without q + u and q + v, and adds up the gradients of the logits of each distance.
//
// Shared memory holds the rows of r, the pipeline stages with q + u and dO of a tile, q + v of a tile, a window of
// keys and a window of values, and products of 2560 bytes per warp:
//
//   (kDistances + (2 * kStages + 1) * kQueries + 2 * KvWindow::kRows) * (kSize + 8) * sizeof(T) + 2560 * kWarps
//
// bytes. A lane has kSize / 2 accumulators of the gradient, and kQueries / 2 for each of P and the gradients of the
// logits. For head size 64 in bf16 a block has 4 warps, 64 rows of r, tiles of 32 queries, 2 stages and 77.5 KiB; a
// lane has 32 + 2 * 16 accumulators. For the position bias, shared memory lacks the rows of r and q + v, 64 KiB remain,
// and a lane has 2 sums and 2 * 16 accumulators.
#pragma once

#include "cuda/attention_forward.h"

namespace mh::kernels {

// The tile sizes and the shared memory of attention_distance_gradient().
template <class T, int kSize, bool kPositionBias = false>
struct DistanceGradientTiles {
  static constexpr int kWarps = kRelativeWarps<T, kSize>, kThreads = 32 * kWarps, kDistances = 16 * kWarps;
  static constexpr int kQueries = kRelativeTileRows<T, kSize>, kStride = kSize + kPad,
                       kProductRowStride = kProductStride<32>;
  static constexpr int kWindowRows = kDistances + kQueries, kStages = kRelativeStages<T, kSize>;
  using KvWindow = SlidingWindow<T, kSize, kWindowRows, kQueries>;
  struct RelativeOperands {
    alignas(16) T r[kDistances * kStride];
    alignas(16) T q_v[kQueries * kStride];
  };
  struct alignas(16) Shared : std::conditional_t<kPositionBias, NoRelativeSmem, RelativeOperands> {
    alignas(16) T q[kStages][kQueries * kStride];
    T dout[kStages][kQueries * kStride];
    KvWindow k, v;
    float products[kWarps * 16 * kProductRowStride];
  };
};

// Computes dr (batch, heads, distances, key_size) or, if kPositionBias, dposition_bias (batch, heads, distances); zeros
// for distances that no pair of query and key has. Grid: (tiles of distances, batch * heads).
template <class T, int kSize, bool kPositionBias, class Thread>
MH_DEVICE void attention_distance_gradient(const Thread& thread, const AttentionParams& params,
                                           const KernelTensors<T>& tensors,
                                           typename DistanceGradientTiles<T, kSize, kPositionBias>::Shared& shared) {
  using Traits = DistanceGradientTiles<T, kSize, kPositionBias>;
  const StridedTensor<const T>&q = tensors.q, &k = tensors.k, &v = tensors.v, &dout = tensors.dout;
  const int64_t b = thread.block_y() / params.value_heads, head = thread.block_y() % params.value_heads;
  const int queries = static_cast<int>(params.queries), keys = static_cast<int>(params.keys),
            causal_offset = keys - queries;
  const int g = thread.lane() / 4, t = thread.lane() % 4;
  const int first = thread.block_x() * Traits::kDistances, warp_row = thread.warp() * 16 + g;
  const int num_unpadded_keys = num_unpadded_keys_of(params, b, keys);
  const T *query_data = row_of(q, b, head, 0), *dout_data = row_of(dout, b, head, 0);
  const T *key_data = row_of(k, b, params.k_head(head), 0), *value_data = row_of(v, b, params.v_head(head), 0);
  DistanceRanges ranges;
  if constexpr (kPositionBias) {
    ranges = ranges_of(params.position_bias);
  } else {
    ranges = ranges_of(params.relative);
    load_tile<Traits::kDistances, kSize, Traits::kStride>(thread, shared.r, distances_of_head<T>(params, head), first);
    thread.commit_group();
  }

  const float head_scale = params.head_scales != nullptr ? params.head_scales[b * params.head_scales_stride + head] : 1;
  const int64_t stats_offset = thread.block_y() * params.queries;  // index of lse and delta of query 0
  float* const window_products = shared.products + thread.warp() * 16 * Traits::kProductRowStride;
  [[maybe_unused]] const LogitTerms logit_terms(params, head);
  // dr of a warp's 16 distances; of the position bias: x[r] is a lane's sum of warp_row + 8 * r.
  Accumulator dr_accum[kPositionBias ? 1 : kSize / 8];
  for (int range_index = 0; range_index < ranges.num_key_ranges; ++range_index) {
    const IndexRange range_keys = intersect({0, num_unpadded_keys}, ranges.key_ranges[range_index]);
    // Row `first` + ρ of r is for the distance from query t to key t + key_shift + ρ.
    const int key_shift = first - distance_row(params, ranges.key_ranges[range_index], 0, 0),
              max_key_shift = key_shift + Traits::kDistances - 1;
    if (params.causal &&
        (key_shift > causal_offset || (params.window > 0 && max_key_shift <= causal_offset - params.window)))
      continue;
    if (kPositionBias && !params.causal && params.window > 0 &&
        (key_shift >= params.window || max_key_shift <= -params.window))
      continue;
    const int query_begin = range_keys.first - max_key_shift > 0 ? range_keys.first - max_key_shift : 0;
    const int end = range_keys.end - key_shift < queries ? range_keys.end - key_shift : queries;
    if (range_keys.first >= range_keys.end || query_begin >= end) continue;
    const auto load = [&](int i, int stage, int ring_row, bool is_first) {
      load_tile<Traits::kQueries, kSize, Traits::kStride>(
          thread, shared.q[stage], {query_data, q.row_stride, end, params.key_size, params.has_aligned_rows}, i);
      load_tile<Traits::kQueries, kSize, Traits::kStride>(
          thread, shared.dout[stage], {dout_data, dout.row_stride, end, params.value_size, params.has_aligned_rows}, i);
      const int key = i + key_shift;
      const auto load_window = [&](typename Traits::KvWindow& to, GlobalMatrix<const T> matrix) {
        if (is_first) {
          to.template load<Traits::kWindowRows>(thread, 0, matrix, key);
        } else {  // only the rows that the previous tile did not load
          to.template load<Traits::kQueries>(thread, ring_row + Traits::kDistances, matrix, key + Traits::kDistances);
        }
      };
      load_window(shared.k, {key_data, k.row_stride, range_keys.end, params.key_size, params.has_aligned_rows});
      load_window(shared.v, {value_data, v.row_stride, range_keys.end, params.value_size, params.has_aligned_rows});
    };
    const auto visit = [&](int i, int stage, int ring_row) {
      if constexpr (!kPositionBias)
        add_biases<Traits::kQueries, kSize>(thread, params, head, shared.q[stage], shared.q_v);
      thread.barrier();
      Accumulator p[Traits::kQueries / 8], ds[Traits::kQueries / 8];  // (distances, queries)
      if constexpr (!kPositionBias)
        multiply_transposed<kSize, Traits::kStride>(thread, p, shared.r + thread.warp() * 16 * Traits::kStride,
                                                    shared.q_v);
      // Adds to each element of `to` (distances, queries) the product of a row of `rows` (q + u or dO of the query)
      // with a row of `kv_window` (the key or value that the query and the distance determine).
      const auto multiply_window = [&](Accumulator(&to)[Traits::kQueries / 8], const T* rows,
                                       const typename Traits::KvWindow& kv_window) {
        MH_FOR (m, Traits::kQueries / 16) {
          multiply_sliding<kSize, 32>(thread, window_products, rows + m * 16 * Traits::kStride, kv_window,
                                      ring_row + 16 * m + 16 * thread.warp());
          MH_FOR (n, 2)
            MH_FOR (x, 4) {
              const int query = n * 8 + 2 * t + x % 2;
              to[2 * m + n].x[x] += window_products[query * Traits::kProductRowStride + query + g + x / 2 * 8];
            }
        }
      };
      multiply_window(p, shared.q[stage], shared.k);
      apply_distance_mask<kPositionBias>(thread, params, range_keys, end, i, key_shift + 16 * thread.warp(), p);
      multiply_window(ds, shared.dout[stage], shared.v);
      uint32_t dropout_keep_bits = 0;
      if (params.has_dropout())
        dropout_keep_bits =
            dropout_keep_bits_transposed<Traits::kQueries / 8, true>(params, b, head, i + 2 * t, key_shift + warp_row);
      dispatch_normaliser<kPositionBias>(params, [&](const auto& normaliser) {
        MH_FOR (n, Traits::kQueries / 8)
          MH_FOR (e, 2) {
            const int query = i + n * 8 + 2 * t + e;
            const bool in_range = query < end;
            const float lse2 = in_range ? tensors.lse[stats_offset + query] * kLog2E : 0,
                        delta = in_range ? tensors.delta[stats_offset + query] : 0;
            MH_FOR (r, 2) {
              float product = p[n].x[2 * r + e];  // with a position bias, the logit
              if constexpr (kPositionBias) {
                float unused_slope;
                product = logit_terms.logit(thread, product, first + warp_row + 8 * r, unused_slope);
              }
              const float x = thread.exp2(normaliser.log2_numerator(thread, product) - lse2);
              float scaled_dropout = head_scale;
              if (params.has_dropout())
                scaled_dropout *= dropout_factor(dropout_keep_bits, 4 * n + 2 * r + e, params.dropout.scale);
              float& y = ds[n].x[2 * r + e];
              y = normaliser.multiply_slope(thread, x * (y * scaled_dropout - delta), x, product);
              if constexpr (kPositionBias) dr_accum[0].x[r] += y;
            }
          }
      });
      if constexpr (!kPositionBias) multiply_add<kSize, Traits::kStride>(thread, dr_accum, ds, shared.q_v);
    };
    for_each_tile<Traits::kStages, Traits::kQueries>(
        thread, query_begin, end, load,
        [](int ring_row) { return Traits::KvWindow::wrap(ring_row + Traits::kQueries); }, visit);
  }
  const int64_t head_offset = thread.block_y() * int64_t{ranges.num_distances};  // index of distance 0 of the head
  if constexpr (kPositionBias) {
    MH_FOR (r, 2) {
      const int row = first + warp_row + 8 * r;
      const float sum = row_sum(thread, dr_accum[0].x[r]);
      if (t == 0 && row < ranges.num_distances) tensors.dposition_bias[head_offset + row] = sum;
    }
  } else {
    float* const dr_head = tensors.dr + head_offset * params.key_size;
    MH_FOR (n, kSize / 8)
      MH_FOR (x, 4) {
        const int row = first + warp_row + x / 2 * 8, column = n * 8 + 2 * t + x % 2;
        if (row < ranges.num_distances && column < params.key_size)
          dr_head[int64_t{row} * params.key_size + column] = dr_accum[n].x[x];
      }
  }
  thread.template wait_group<0>();
}

}  // namespace mh::kernels
