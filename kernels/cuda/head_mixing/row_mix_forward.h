// Forward pass of attention with head mixing by row mix (head_mixing/row_mix.h). Needs the log-sum-exp of each query
// head, which attention_forward() without outputs computes.
#pragma once

#include "cuda/head_mixing/forward.h"
#include "cuda/head_mixing/row_mix.h"

namespace mh::kernels {

// The tile sizes and the plan of row_mix_forward(). Z: an instance of RowMix.
template <class Z>
struct RowMixForwardTiles : RowMixQueryTiles<Z, Z::kQueries, Z::kKeys> {
  static constexpr RowMixPlan plan(const AttentionParams& a, int limit) {
    return RowMixForwardTiles::plan_of(a, a.in_heads, 1, limit);
  }
};

// Returns whether the fast path applies to tiles without masked pairs: softmax without dropout, whose probabilities
// take only one multiply-add and one exponential per element.
MH_DEVICE bool allows_fast_path(const AttentionParams& a) {
  return a.normaliser == Normaliser::softmax && !a.has_dropout();
}

// The position of a tile of products of queries and keys: its first query, its first key, and the end of the visible
// keys.
struct ProductTile {
  int query, key, key_end;
};

// Replaces p (16, 8 kColumns), the products of a tile of 16 queries, by probabilities. lse2: log-sum-exp in base 2 of a
// lane's two queries. kFastPath: assumes softmax, and that all queries see all keys.
template <bool kFastPath, int kColumns, class Thread>
MH_DEVICE void to_probabilities(const Thread& thread, const AttentionParams& a, ProductTile tile,
                                const float (&lse2)[2], Accumulator (&p)[kColumns]) {
  const auto exponentials = [&](const auto& normaliser) {
    MH_FOR (n, kColumns)
      MH_FOR (i, 4) p[n].x[i] = thread.exp2(normaliser.logarithm(thread, p[n].x[i]) - lse2[i / 2]);
  };
  if constexpr (kFastPath) {
    exponentials(SoftmaxExponent{a.scale * kLog2E, a.scale});
  } else {
    apply_mask<false>(thread, a, tile.key_end, tile.query, tile.key, p);
    dispatch_normaliser(a, exponentials);
  }
}

// Loads the log-sum-exp, in base 2, of the queries of a tile from query `first` on: of a lane's two queries of each
// strip, for each head of its warp. queries: number of queries. Heads that do not exist get zeros.
template <int kWarpHeads, int kStrips, class Thread>
MH_DEVICE void read_lse(const Thread& thread, const AttentionParams& a, const AttentionTensors& x, int64_t b, int first,
                        int queries, float (&lse2)[kWarpHeads][kStrips][2]) {
  const int g = thread.lane() / 4, warp_head = thread.warp() * kWarpHeads;
  const auto clamped = [&](int query) { return query < queries ? query : queries - 1; };
  MH_FOR (o, kWarpHeads)
    MH_FOR (strip, kStrips)
      MH_FOR (r, 2)
        lse2[o][strip][r] =
            warp_head + o < a.in_heads
                ? x.lse[(b * a.in_heads + warp_head + o) * queries + clamped(first + 16 * strip + g + 8 * r)] * kLog2E
                : 0;
}

// Computes x.out. With several splits it writes only partial outputs, and combine_head_mixing_splits() computes x.out.
// Grid: (order.blocks(), 1, splits.count).
template <class Z, class T, class Thread>
MH_DEVICE void row_mix_forward(const Thread& thread, const AttentionParams& a, const RowMixPlan& plan,
                               const BlockOrder& order, const KernelTensors<T>& x, const HeadMixingSplits& splits,
                               void* memory) {
  using Sizes = RowMixForwardTiles<Z>;
  using Tile = typename Sizes::Tile;
  using Probability = typename Z::Probability;
  constexpr int kSize = Z::kSize, kStride = Z::kStride, kWarpHeads = Z::kWarpHeads, kStrips = Tile::kStrips;
  const BlockOrder::Position block = order.position(thread, true);
  const int64_t b = block.row;
  const int queries = static_cast<int>(a.queries), first = block.tile * Z::kQueries, g = thread.lane() / 4,
            t = thread.lane() % 4, warp_head = thread.warp() * kWarpHeads;
  const KeyRange visible = split_of(visible_keys(a, b, first, Z::kQueries), Z::kKeys, thread.block_z(), splits.count);

  auto* const query_rows = static_cast<T*>(memory);
  SmemPipeline<T> pipeline{query_rows + a.in_heads * Z::kQueries * kStride, plan.num_stages, Sizes::stage_elements(a)};
  const Tile tile = Tile::template create<Z::kMatrixHeads>(thread, a, pipeline.end());
  const KeyRows<Z, T, Z::kKeys> keys(thread, a, x, b);
  const ValueRows<Z, T, Z::kKeys> values(thread, a, x, b);
  AlternatingLoads<Z, T, Z::kKeys> loads{keys, values, visible};
  const auto load = [&](T* stage) { loads.load(thread, stage); };
  QueryRows<Z, T, Z::kQueries>(thread, a, x, b).load(thread, query_rows, first, queries);
  pipeline.fill(thread, load);

  float lse2[kWarpHeads][kStrips][2];
  read_lse(thread, a, x, b, first, queries, lse2);
  MixMatrix<Probability, Z::kMatrixHeads> matrices[Sizes::kWarpProducts];
  MH_FOR (u, Sizes::kWarpProducts)
    matrices[u].template read<true>(thread, a, matrices_of_product<Z>(thread, a, b, first, queries, u));

  Accumulator sums[kWarpHeads][kStrips][kSize / 8];
  const bool fast_params = allows_fast_path(a);
  MH_ROLLED
  for (int key = visible.first; key < visible.end; key += Z::kKeys) {
    dispatch_bool(fast_params && all_visible(a, visible.end, first, Z::kQueries, key, Z::kKeys), [&](auto fast_path) {
      constexpr bool kFastPath = decltype(fast_path)::value;
      pipeline.acquire(thread, load);
      MH_FOR (o, kWarpHeads) {
        const int j = warp_head + o;
        if (j >= a.in_heads) break;
        multiply_strips<kSize, kStrips, Z::kKeys>(
            thread, query_rows + j * Z::kQueries * kStride, pipeline.current() + j * Z::kKeys * kStride,
            [&](int strip, Accumulator(&p)[Z::kKeys / 8]) {
              const int query = first + 16 * strip;
              to_probabilities<kFastPath>(thread, a, {query, key, visible.end}, lse2[o][strip], p);
              if (!kFastPath && a.has_dropout() && a.dropout_before_mixing) drop(a, b, j, query + g, key + 2 * t, p);
              tile.template put<Probability>(thread, j, strip, p);
            });
      }
      pipeline.release();
      pipeline.acquire(thread, load);
      mix_queries<Z, Probability, T, false>(thread, tile, a.in_heads, a.out_heads, matrices);
      thread.barrier();
      MH_FOR (o, kWarpHeads) {
        const int i = warp_head + o;
        if (i >= a.out_heads) break;
        const T* const value_rows = pipeline.current() + i * Z::kKeys * kStride;
        const auto dropout = [&](int strip, int column, Accumulator(&p)[2]) {
          drop(a, b, i, first + 16 * strip + g, key + column + 2 * t, p);
        };
        if (!kFastPath && a.has_dropout() && !a.dropout_before_mixing)
          accumulate<kSize, T, true>(thread, sums[o], tile, i, value_rows, dropout);
        else accumulate<kSize, T, false>(thread, sums[o], tile, i, value_rows, dropout);
      }
      pipeline.release();
    });
  }
  thread.template wait_group<0>();
  thread.barrier();
  MH_FOR (o, kWarpHeads) {
    const int i = warp_head + o;
    if (i >= a.out_heads) break;
    MH_FOR (strip, kStrips) {
      const int query = first + 16 * strip;
      float factor[2];  // scales by which the rows of the two queries' matrices were divided (MixMatrix)
      MH_FOR (r, 2)
        factor[r] = floor_pow2(matrix_of_query(a, b, query + g + 8 * r, queries) + i, a.out_heads, a.in_heads);
      if (splits.count > 1) {
        splits.store(thread, a, {b, i, query + g, thread.block_z()}, queries, sums[o][strip], factor);
      } else {
        store_rows<kSize, kStride>(thread, query_rows + thread.warp() * 16 * kStride, sums[o][strip], factor,
                                   matrix_of_head(x.out, b, i, queries, a.value_size, a.aligned), query);
      }
    }
  }
}

}  // namespace mh::kernels
