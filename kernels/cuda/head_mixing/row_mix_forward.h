// Forward pass of attention with head mixing by row mix (head_mixing/row_mix.h). Needs the log-sum-exp of each query in
// each query head, which attention_forward() computes with kComputeOut = false.
//
// Tiling: a block of kWarps warps (4 or 8) computes kQueries queries (32 or 64) of all heads of a batch row, and loops
// over tiles of kKeys keys (16 or 32). For each tile a warp computes the probabilities of its kWarpHeads query heads (1
// or 2), mixes all heads for its kQueries / kWarps queries, and adds the products with V to the outputs of its
// kWarpHeads value heads. A block takes
//
//   2 * (heads * kQueries * (kSize + 8) + num_stages * max_heads * kKeys * (kSize + 8) +
//        tile_heads * (kQueries * (kKeys + 8) + 8))
//
// bytes of shared memory, with max_heads = max(heads, value_heads): Q of the block, 1 to 4 pipeline stages (each with K
// or V of a tile), and the tile of probabilities. tile_heads is max_heads, or max_heads + 1 if `heads` or `value_heads`
// is less than RowMixTraits::kMatrixHeads.
// A lane has kWarpHeads * kQueries * kSize / 32 accumulators of outputs, at most 128; __launch_bounds__ allows 255
// registers.
//
// For 16 heads of size 64 in bf16 on an H100, whose blocks have up to 227 KiB of shared memory, a block has 8 warps of
// 2 heads, 32 queries, 16 keys in a tile, 3 stages, 128 accumulators and 204 KiB; 512 queries take 16 blocks for each
// batch row and split of the keys.
#pragma once

#include "cuda/head_mixing/forward.h"
#include "cuda/head_mixing/row_mix.h"

namespace mh::kernels {

// The tile sizes and the plan of row_mix_forward(). Traits: an instance of RowMixTraits.
template <class Traits>
struct RowMixForwardTiles : RowMixQueryTiles<Traits, Traits::kQueries, Traits::kKeys> {
  static constexpr RowMixPlan plan(const AttentionParams& params, int max_shared_bytes) {
    return RowMixForwardTiles::plan_of(params, params.heads, 1, max_shared_bytes);
  }
};

// Returns whether tiles without masked pairs take the fast path. They do with softmax and without dropout: then a
// probability takes only one multiply-add and one exponential.
MH_DEVICE bool allows_fast_path(const AttentionParams& params) {
  return params.normaliser == Normaliser::softmax && !params.has_dropout();
}

// The position of a tile of products of queries and keys: its first query, its first key, and key_end; keys from
// key_end on are masked.
struct ProductTile {
  int query, key, key_end;
};

// Replaces p (16, 8 kColumnFragments), the products of a tile of 16 queries, by probabilities. lse2: log-sum-exp in
// base 2 of a lane's two queries. kFastPath: assumes softmax, and that all queries see all keys.
template <bool kFastPath, int kColumnFragments, class Thread>
MH_DEVICE void to_probabilities(const Thread& thread, const AttentionParams& params, ProductTile tile,
                                const float (&lse2)[2], Accumulator (&p)[kColumnFragments]) {
  const auto exponentials = [&](const auto& normaliser) {
    MH_FOR (n, kColumnFragments)
      MH_FOR (i, 4) p[n].x[i] = thread.exp2(normaliser.log2_numerator(thread, p[n].x[i]) - lse2[i / 2]);
  };
  if constexpr (kFastPath) {
    exponentials(SoftmaxExponent{params.scale * kLog2E, params.scale});
  } else {
    apply_mask<false>(thread, params, tile.key_end, tile.query, tile.key, p);
    dispatch_normaliser(params, exponentials);
  }
}

// Loads the log-sum-exp, in base 2, of a lane's two queries in each row tile of 16 queries from query `first` on, for
// each head of its warp. queries: params.queries. A query that does not exist gets the value of the last query, and a
// head that does not exist gets 0.
template <int kWarpHeads, int kRowTiles, class Thread>
MH_DEVICE void read_lse(const Thread& thread, const AttentionParams& params, const AttentionTensors& tensors, int64_t b,
                        int first, int queries, float (&lse2)[kWarpHeads][kRowTiles][2]) {
  const int g = thread.lane() / 4, warp_head = thread.warp() * kWarpHeads;
  const auto clamp_query = [&](int query) { return query < queries ? query : queries - 1; };
  MH_FOR (o, kWarpHeads)
    MH_FOR (row_tile, kRowTiles)
      MH_FOR (r, 2)
        lse2[o][row_tile][r] = warp_head + o < params.heads
                                   ? tensors.lse[(b * params.heads + warp_head + o) * queries +
                                                 clamp_query(first + 16 * row_tile + g + 8 * r)] *
                                         kLog2E
                                   : 0;
}

// Computes tensors.out. With several splits it writes only partial outputs, and combine_head_mixing_splits() computes
// tensors.out. Grid: (order.num_blocks(), 1, splits.count).
template <class Traits, class T, class Thread>
MH_DEVICE void row_mix_forward(const Thread& thread, const AttentionParams& params, const RowMixPlan& plan,
                               const BlockOrder& order, const KernelTensors<T>& tensors, const HeadMixingSplits& splits,
                               void* memory) {
  using Sizes = RowMixForwardTiles<Traits>;
  using Tile = typename Sizes::Tile;
  using Probability = typename Traits::Probability;
  constexpr int kSize = Traits::kSize, kStride = Traits::kStride, kWarpHeads = Traits::kWarpHeads,
                kRowTiles = Tile::kRowTiles;
  const BlockOrder::Position block = order.position(thread, true);
  const int64_t b = block.batch_row;
  const int queries = static_cast<int>(params.queries), first = block.tile * Traits::kQueries, g = thread.lane() / 4,
            t = thread.lane() % 4, warp_head = thread.warp() * kWarpHeads;
  const IndexRange visible_range =
      split_of(visible_keys(params, b, first, Traits::kQueries), Traits::kKeys, thread.block_z(), splits.count);

  auto* const query_rows = static_cast<T*>(memory);
  SmemPipeline<T> pipeline{query_rows + params.heads * Traits::kQueries * kStride, plan.num_stages,
                           Sizes::stage_elements(params)};
  const Tile tile = Tile::template create<Traits::kMatrixHeads>(thread, params, pipeline.end());
  const KeyLoader<Traits, T, Traits::kKeys> key_loader(thread, params, tensors, b);
  const ValueLoader<Traits, T, Traits::kKeys> value_loader(thread, params, tensors, b);
  AlternatingLoads<Traits, T, Traits::kKeys> loads{key_loader, value_loader, visible_range};
  const auto load = [&](T* stage) { loads.load(thread, stage); };
  QueryLoader<Traits, T, Traits::kQueries>(thread, params, tensors, b).load(thread, query_rows, first, queries);
  pipeline.fill(thread, load);

  float lse2[kWarpHeads][kRowTiles][2];
  read_lse(thread, params, tensors, b, first, queries, lse2);
  MixMatrix<Probability, Traits::kMatrixHeads> matrices[Sizes::kWarpProducts];
  MH_FOR (u, Sizes::kWarpProducts)
    matrices[u].template read<true>(thread, params, matrices_of_product<Traits>(thread, params, b, first, queries, u));

  Accumulator out_accum[kWarpHeads][kRowTiles][kSize / 8];
  const bool can_use_fast_path = allows_fast_path(params);
  MH_ROLLED
  for (int key = visible_range.first; key < visible_range.end; key += Traits::kKeys) {
    dispatch_bool(
        can_use_fast_path && all_visible(params, visible_range.end, first, Traits::kQueries, key, Traits::kKeys),
        [&](auto fast_path) {
          constexpr bool kFastPath = decltype(fast_path)::value;
          pipeline.acquire(thread, load);
          MH_FOR (o, kWarpHeads) {
            const int j = warp_head + o;
            if (j >= params.heads) break;
            multiply_row_tiles<kSize, kRowTiles, Traits::kKeys>(
                thread, query_rows + j * Traits::kQueries * kStride, pipeline.current() + j * Traits::kKeys * kStride,
                [&](int row_tile, Accumulator(&p)[Traits::kKeys / 8]) {
                  const int query = first + 16 * row_tile;
                  to_probabilities<kFastPath>(thread, params, {query, key, visible_range.end}, lse2[o][row_tile], p);
                  if (!kFastPath && params.has_dropout() && params.dropout_before_mixing)
                    apply_dropout(params, b, j, query + g, key + 2 * t, p);
                  tile.template put<Probability>(thread, j, row_tile, p);
                });
          }
          pipeline.release();
          pipeline.acquire(thread, load);
          mix_queries<Traits, Probability, T, false>(thread, tile, params.heads, params.value_heads, matrices);
          thread.barrier();
          MH_FOR (o, kWarpHeads) {
            const int i = warp_head + o;
            if (i >= params.value_heads) break;
            const T* const value_rows = pipeline.current() + i * Traits::kKeys * kStride;
            const auto dropout = [&](int row_tile, int column, Accumulator(&p)[2]) {
              apply_dropout(params, b, i, first + 16 * row_tile + g, key + column + 2 * t, p);
            };
            if (!kFastPath && params.has_dropout() && !params.dropout_before_mixing)
              accumulate<kSize, T, true>(thread, out_accum[o], tile, i, value_rows, dropout);
            else accumulate<kSize, T, false>(thread, out_accum[o], tile, i, value_rows, dropout);
          }
          pipeline.release();
        });
  }
  thread.template wait_group<0>();
  thread.barrier();
  MH_FOR (o, kWarpHeads) {
    const int i = warp_head + o;
    if (i >= params.value_heads) break;
    MH_FOR (row_tile, kRowTiles) {
      const int query = first + 16 * row_tile;
      float factor[2];  // MixMatrix::scale of row i (value head i) of the two queries
      MH_FOR (r, 2)
        factor[r] =
            floor_pow2(matrix_of_query(params, b, query + g + 8 * r, queries) + i, params.value_heads, params.heads);
      if (splits.count > 1) {
        splits.store(thread, params, {b, i, query + g, thread.block_z()}, queries, out_accum[o][row_tile], factor);
      } else {
        store_rows<kSize, kStride>(
            thread, query_rows + thread.warp() * 16 * kStride, out_accum[o][row_tile], factor,
            matrix_of_head(tensors.out, b, i, queries, params.value_size, params.has_aligned_rows), query);
      }
    }
  }
}

}  // namespace mh::kernels
