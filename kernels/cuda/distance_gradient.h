// The gradient of r, the relative position vectors (RelativeParams), in attention without head mixing.
//
// Tiling: a block computes the gradient of 16 rows of r per warp. For every run of keys that uses these rows it loops
// over tiles of queries. Within a run a query t and a row ρ of r determine one key, so 16 queries and 16 rows involve
// 31 keys. The products of the queries with these keys go to shared memory, where the key of query t and row ρ, counted
// from the first ones of the tile, is in column t + ρ. Nothing is accumulated in global memory.
#pragma once

#include "cuda/attention_forward.h"

namespace mh::kernels {

// The tile sizes and the shared memory of attention_distance_gradient().
template <class T, int kSize>
struct DistanceGradientTiles {
  static constexpr int kWarps = kRelativeWarps<T, kSize>, kThreads = 32 * kWarps, kDistances = 16 * kWarps;
  static constexpr int kQueries = kRelativeStep<T, kSize>, kStride = kSize + kPad,
                       kProductRowStride = kProductStride<32>;
  static constexpr int kWindowRows = kDistances + kQueries, kStages = kRelativeStages<T, kSize>;
  using Keys = SlidingWindow<T, kSize, kWindowRows, kQueries>;
  struct alignas(16) Shared {
    T r[kDistances * kStride];
    T q[kStages][kQueries * kStride], dout[kStages][kQueries * kStride], q_v[kQueries * kStride];
    Keys k, v;
    float products[kWarps * 16 * kProductRowStride];
  };
};

// Computes dr (batch, heads, distances, key_size); zeros for rows of r that no pair of query and key uses. Grid: (tiles
// of distances, batch * heads).
template <class T, int kSize, class Thread>
MH_DEVICE void attention_distance_gradient(const Thread& thread, const AttentionParams& a,
                                           const KernelTensors<T>& tensors,
                                           typename DistanceGradientTiles<T, kSize>::Shared& shared) {
  using Z = DistanceGradientTiles<T, kSize>;
  const Rows<const T>&q = tensors.q, &k = tensors.k, &v = tensors.v, &dout = tensors.dout;
  const int64_t b = thread.block_y() / a.out_heads, head = thread.block_y() % a.out_heads;
  const int queries = static_cast<int>(a.queries), keys = static_cast<int>(a.keys), offset = keys - queries;
  const int g = thread.lane() / 4, t = thread.lane() % 4;
  const int first = thread.block_x() * Z::kDistances, warp_row = thread.warp() * 16 + g;
  const int unpadded_keys = unpadded_keys_of(a, b, keys);
  const T *query_data = row_of(q, b, head, 0), *dout_data = row_of(dout, b, head, 0);
  const T *key_data = row_of(k, b, a.key_head(head), 0), *value_data = row_of(v, b, a.value_head(head), 0);
  load_tile<Z::kDistances, kSize, Z::kStride>(thread, shared.r, distances_of_head<T>(a, head), first);
  thread.commit_group();

  const float scale = a.head_scales != nullptr ? a.head_scales[b * a.head_scales_stride + head] : 1;
  const int64_t rows = thread.block_y() * a.queries;
  float* const window_products = shared.products + thread.warp() * 16 * Z::kProductRowStride;
  Accumulator sums[kSize / 8];
  for (int run = 0; run < a.relative.num_runs; ++run) {
    const KeyRange run_keys = intersect({0, unpadded_keys}, a.relative.runs[run]);
    // Row first + ρ of r is the distance from query t to key t + lead + ρ.
    const int lead = first - distance_row(a, a.relative.runs[run], 0, 0), last = lead + Z::kDistances - 1;
    if (a.causal && (lead > offset || (a.window > 0 && last <= offset - a.window))) continue;
    const int query_begin = run_keys.first - last > 0 ? run_keys.first - last : 0;
    const int end = run_keys.end - lead < queries ? run_keys.end - lead : queries;
    if (run_keys.first >= run_keys.end || query_begin >= end) continue;
    const auto load = [&](int i, int stage, int slide_row, bool is_first) {
      load_tile<Z::kQueries, kSize, Z::kStride>(thread, shared.q[stage],
                                                {query_data, q.row_stride, end, a.key_size, a.aligned}, i);
      load_tile<Z::kQueries, kSize, Z::kStride>(thread, shared.dout[stage],
                                                {dout_data, dout.row_stride, end, a.value_size, a.aligned}, i);
      const int key = i + lead;
      const auto load_keys = [&](typename Z::Keys& to, GlobalMatrix<const T> matrix) {
        if (is_first) {
          to.template load<Z::kWindowRows>(thread, 0, matrix, key);
        } else {  // only the rows that the previous tile did not load
          to.template load<Z::kQueries>(thread, slide_row + Z::kDistances, matrix, key + Z::kDistances);
        }
      };
      load_keys(shared.k, {key_data, k.row_stride, run_keys.end, a.key_size, a.aligned});
      load_keys(shared.v, {value_data, v.row_stride, run_keys.end, a.value_size, a.aligned});
    };
    const auto visit = [&](int i, int stage, int slide_row) {
      add_biases<Z::kQueries, kSize>(thread, a, head, shared.q[stage], shared.q_v);
      thread.barrier();
      Accumulator p[Z::kQueries / 8], ds[Z::kQueries / 8];  // (distances, queries)
      multiply_transposed<kSize, Z::kStride>(thread, p, shared.r + thread.warp() * 16 * Z::kStride, shared.q_v);
      // Computes to (distances, queries) += the products of `left`, q + u or dO of each query, with `right`, the key or
      // the value that the query and the distance determine.
      const auto multiply_keys = [&](Accumulator(&to)[Z::kQueries / 8], const T* left, const typename Z::Keys& right) {
        MH_FOR (m, Z::kQueries / 16) {
          multiply_sliding<kSize, 32>(thread, window_products, left + m * 16 * Z::kStride, right,
                                      slide_row + 16 * m + 16 * thread.warp());
          MH_FOR (n, 2)
            MH_FOR (x, 4) {
              const int query = n * 8 + 2 * t + x % 2;
              to[2 * m + n].x[x] += window_products[query * Z::kProductRowStride + query + g + x / 2 * 8];
            }
        }
      };
      multiply_keys(p, shared.q[stage], shared.k);
      apply_distance_mask(thread, a, run_keys, end, i, lead + 16 * thread.warp(), p);
      multiply_keys(ds, shared.dout[stage], shared.v);
      uint32_t keep_bits = 0;
      if (a.has_dropout())
        keep_bits = keep_bits_transposed<Z::kQueries / 8, true>(a, b, head, i + 2 * t, lead + warp_row);
      dispatch_normaliser(a, [&](const auto& normaliser) {
        MH_FOR (n, Z::kQueries / 8)
          MH_FOR (e, 2) {
            const int query = i + n * 8 + 2 * t + e;
            const bool in_range = query < end;
            const float lse2 = in_range ? tensors.lse[rows + query] * kLog2E : 0,
                        delta = in_range ? tensors.delta[rows + query] : 0;
            MH_FOR (r, 2) {
              const float product = p[n].x[2 * r + e], x = thread.exp2(normaliser.logarithm(thread, product) - lse2);
              float keep_factor = scale;
              if (a.has_dropout()) keep_factor *= dropout_factor(keep_bits, 4 * n + 2 * r + e, a.dropout.scale);
              float& y = ds[n].x[2 * r + e];
              y = normaliser.multiply_slope(thread, x * (y * keep_factor - delta), x, product);
            }
          }
      });
      multiply_add<kSize, Z::kStride>(thread, sums, ds, shared.q_v);
    };
    each_tile<Z::kStages, Z::kQueries>(
        thread, query_begin, end, load, [](int slide_row) { return Z::Keys::wrap(slide_row + Z::kQueries); }, visit);
  }
  float* const dr_head = tensors.dr + thread.block_y() * int64_t{a.relative.distances} * a.key_size;
  MH_FOR (n, kSize / 8)
    MH_FOR (x, 4) {
      const int row = first + warp_row + x / 2 * 8, column = n * 8 + 2 * t + x % 2;
      if (row < a.relative.distances && column < a.key_size) dr_head[int64_t{row} * a.key_size + column] = sums[n].x[x];
    }
  thread.template wait_group<0>();
}

}  // namespace mh::kernels
