// Backward pass of attention with head mixing by row mix (head_mixing/row_mix.h). The equations are in
// head_mixing/backward.h. Each of three kernels recomputes the probabilities from the log-sum-exp:
// row_mix_matrix_gradient() computes the gradient of the mixing matrix and the statistics of each query;
// row_mix_query_gradient() computes dQ; row_mix_key_gradient() computes dK and dV. Delta is summed from the same
// rounded dP from which the other two kernels subtract delta, so that the gradients of a query's logits sum to zero.
//
// Tiling: a block of kWarps warps (4 or 8) computes rows, which are queries or keys, of all heads of a batch row; each
// warp has kWarpHeads heads (1 or 2). With kStride = kSize + 8 and max_heads = max(heads, value_heads), a block takes
//
//   2 * ((heads + value_heads) * rows * kStride + num_stages * stage + tiles * tile)
//
// bytes of shared memory: resident rows, 1 to 4 pipeline stages and tiles. A tile has tile_heads * (queries * (keys +
// 8) + 8) elements; row_mix_forward.h defines tile_heads. __launch_bounds__ allows 255 registers.
//
// - row_mix_matrix_gradient(): 16 or 32 queries, with tiles of kKeys keys (16 or 32). Q and dO are resident; a stage
//   has K or V, max_heads * kKeys * kStride elements; the two tiles have P and dP̄. A lane has kWarpProducts *
//   kMatrixHeads / 2 accumulators of G.
// - row_mix_query_gradient(): kQueries queries (32 or 64), with tiles of 16 keys. Q and dO are resident; a stage has V
//   or K, max_heads * 16 * kStride elements; one tile has dP̄, dP and dS in turn. A lane has kWarpHeads * kQueries *
//   kSize / 32 accumulators of dQ, at most 128.
// - row_mix_key_gradient(): 16 or 32 keys, with tiles of 16 queries. K and V are resident; a stage has Q and dO,
//   (heads + value_heads) * 16 * kStride elements; the two tiles have P and dP̄. A lane has kWarpHeads * kKeys * kSize
//   / 16 accumulators of dK and dV, at most 128.
//
// For 16 heads of size 64 in bf16 on an H100, whose blocks have up to 227 KiB of shared memory, blocks have 8 warps of
// 2 heads. For 512 positions the three kernels take, per batch row, 32 blocks of 16 queries, 3 stages, 16 accumulators
// and 204.5 KiB; 16 blocks of 32 queries, 1 stage, 128 accumulators and 204.25 KiB; and 32 blocks of 16 keys, 1 stage,
// 128 accumulators and 168.5 KiB. The last two kernels exceed the 163 KiB of an A100, where forward.h, backward.h and
// key_gradient.h serve this shape.
#pragma once

#include "cuda/head_mixing/row_mix_forward.h"

namespace mh::kernels {

// The statistics (QueryStats) of a lane's two queries of a row tile, for one query head.
struct RowStats {
  float lse2[2], inv_sum[2], delta[2];
  template <class Thread>
  MH_DEVICE void read(const Thread& thread, const QueryStats* head_stats, int query, int queries) {
    MH_FOR (r, 2) {
      const int row = query + 8 * r < queries ? query + 8 * r : queries - 1;
      float elements[4];
      thread.read(elements, &head_stats[row].lse2);
      lse2[r] = elements[0], inv_sum[r] = elements[1], delta[r] = elements[2];
    }
  }
};

// Replaces p (16, 8 kColumnFragments), the products of a tile of 16 queries, by probabilities, and computes `slopes`:
// probability * derivative of the logit with respect to the product. kFastPath: assumes softmax, and that all queries
// see all keys.
template <bool kFastPath, int kColumnFragments, class Thread>
MH_DEVICE void to_probabilities_and_slopes(const Thread& thread, const AttentionParams& params, ProductTile tile,
                                           const RowStats& stats, Accumulator (&p)[kColumnFragments],
                                           Accumulator (&slopes)[kColumnFragments]) {
  const auto exponentials = [&](const auto& normaliser) {
    MH_FOR (n, kColumnFragments)
      MH_FOR (i, 4) {
        const float product = p[n].x[i];
        const float x =
            thread.exp2(normaliser.log2_numerator(thread, product) - stats.lse2[i / 2]) * stats.inv_sum[i / 2];
        p[n].x[i] = x, slopes[n].x[i] = normaliser.multiply_slope(thread, x, x, product);
      }
  };
  if constexpr (kFastPath) {
    exponentials(SoftmaxExponent{params.scale * kLog2E, params.scale});
  } else {
    apply_mask<false>(thread, params, tile.key_end, tile.query, tile.key, p);
    dispatch_normaliser(params, exponentials);
  }
}

// Replaces dP in a row tile of a head of `tile` by dS = slopes * (dP - delta), rounded to T; `slopes` also receives dS.
// If kDropout, applies dropout(row_tile, column, dP) to dP first, like accumulate(). Called by all lanes of a warp.
template <class T, bool kDropout, int kColumnFragments, class Tile, class Thread, class DropoutFn>
MH_DEVICE void to_logit_gradients(const Thread& thread, const Tile& tile, int head, int row_tile, const RowStats& stats,
                                  Accumulator (&slopes)[kColumnFragments], const DropoutFn& dropout) {
  MH_FOR (c, kColumnFragments / 2) {
    Accumulator dp[2];
    tile.template get<T>(thread, head, row_tile, 16 * c, dp);
    if constexpr (kDropout) dropout(row_tile, 16 * c, dp);
    MH_FOR (n, 2)
      MH_FOR (e, 4) slopes[2 * c + n].x[e] *= dp[n].x[e] - stats.delta[e / 2];
  }
  thread.warp_barrier();
  tile.template put<T>(thread, head, row_tile, slopes);
}

// The tile sizes and the plan of row_mix_matrix_gradient(). Traits: an instance of RowMixTraits.
template <class Traits>
struct RowMixMatrixGradientTiles
    : RowMixQueryTiles<Traits, floor_to_row_tiles(2048 / (Traits::kWarpHeads * Traits::kSize), 32), Traits::kKeys> {
  static constexpr RowMixPlan plan(const AttentionParams& params, int max_shared_bytes) {
    return RowMixMatrixGradientTiles::plan_of(params, params.heads + params.value_heads, 2, max_shared_bytes);
  }
};

// Adds P dP̄ᵀ, summed over the keys of a tile, to pair_accum (query heads, value heads), for the queries of one
// product. If a product takes two queries, rows 0 … 7 of pair_accum belong to the first query, and rows 8 … 15 to the
// second.
template <class T, int kMatrixHeads, class Tile, class Thread>
MH_DEVICE void accumulate_head_pairs(const Thread& thread, Accumulator (&pair_accum)[kMatrixHeads / 8], const Tile& p,
                                     const Tile& dp, int query, int heads, int value_heads) {
  const int lane = thread.lane();
  const int p_head = lane % kMatrixHeads, p_query = kMatrixHeads == 8 ? query + lane / 8 % 2 : query;
  const int dp_head = kMatrixHeads == 8 ? lane % 8 : lane % 8 + lane / 16 * 8,
            dp_query = kMatrixHeads == 8 ? query + lane / 16 : query;
  const uint16_t* const p_row =
      p.memory + (p_head < heads ? p_head : p.zero_head) * Tile::kHeadStride + p_query * Tile::kStride + lane / 16 * 8;
  const uint16_t* const dp_row = dp.memory + (dp_head < value_heads ? dp_head : dp.zero_head) * Tile::kHeadStride +
                                 dp_query * Tile::kStride + lane / 8 % 2 * 8;
  MH_FOR (n, Tile::kKeys / 16) {
    uint32_t x[4], y[4];
    thread.load_matrices(x, p_row + 16 * n);
    thread.load_matrices(y, dp_row + 16 * n);
    MH_FOR (c, 2) {
      const uint32_t frag_b[2] = {y[2 * c], y[2 * c + 1]};
      if constexpr (kMatrixHeads == 8) {
        const uint32_t frag_a[4] = {c == 0 ? x[0] : 0, c == 0 ? 0 : x[1], c == 0 ? x[2] : 0, c == 0 ? 0 : x[3]};
        thread.multiply(pair_accum[0].x, frag_a, frag_b, T{});
      } else {
        thread.multiply(pair_accum[c].x, x, frag_b, T{});
      }
    }
  }
}

// Computes tensors.query_stats and tensors.dm. tensors.dm has the gradient of the matrix of each query, or, if the
// queries share a matrix, the sum of these gradients over each tile of queries. Grid: (order.num_blocks()).
template <class Traits, class T, class Thread>
MH_DEVICE void row_mix_matrix_gradient(const Thread& thread, const AttentionParams& params, const RowMixPlan& plan,
                                       const BlockOrder& order, const KernelTensors<T>& tensors, void* memory) {
  using Sizes = RowMixMatrixGradientTiles<Traits>;
  using Tile = typename Sizes::Tile;
  constexpr int kSize = Traits::kSize, kStride = Traits::kStride, kWarpHeads = Traits::kWarpHeads,
                kRowTiles = Tile::kRowTiles, kQueries = Sizes::kQueries, kKeys = Sizes::kKeys;
  const BlockOrder::Position block = order.position(thread, true);
  const int64_t b = block.batch_row;
  const int queries = static_cast<int>(params.queries), first = block.tile * kQueries, g = thread.lane() / 4,
            t = thread.lane() % 4, warp_head = thread.warp() * kWarpHeads;
  const IndexRange visible_range = visible_keys(params, b, first, kQueries);

  auto* const query_rows = static_cast<T*>(memory);
  T* const dout_rows = query_rows + params.heads * kQueries * kStride;
  SmemPipeline<T> pipeline{dout_rows + params.value_heads * kQueries * kStride, plan.num_stages,
                           Sizes::stage_elements(params)};
  const Tile probabilities = Tile::template create<Traits::kMatrixHeads>(thread, params, pipeline.end(), 0),
             gradients = Tile::template create<Traits::kMatrixHeads>(thread, params, pipeline.end(), 1);
  const KeyLoader<Traits, T, kKeys> key_loader(thread, params, tensors, b);
  const ValueLoader<Traits, T, kKeys> value_loader(thread, params, tensors, b);
  AlternatingLoads<Traits, T, kKeys> loads{key_loader, value_loader, visible_range};
  const auto load = [&](T* stage) { loads.load(thread, stage); };
  QueryLoader<Traits, T, kQueries>(thread, params, tensors, b).load(thread, query_rows, first, queries);
  DoutLoader<Traits, T, kQueries>(thread, params, tensors, b).load(thread, dout_rows, first, queries);
  pipeline.fill(thread, load);

  float lse2[kWarpHeads][kRowTiles][2], sum[kWarpHeads][kRowTiles][2] = {}, delta[kWarpHeads][kRowTiles][2] = {};
  read_lse(thread, params, tensors, b, first, queries, lse2);
  MixMatrix<T, Traits::kMatrixHeads> matrices[Sizes::kWarpProducts];
  Accumulator pair_accum[Sizes::kWarpProducts][Traits::kMatrixHeads / 8];
  MH_FOR (u, Sizes::kWarpProducts)
    matrices[u].template read<false>(thread, params, matrices_of_product<Traits>(thread, params, b, first, queries, u));

  const bool can_use_fast_path = allows_fast_path(params);
  MH_ROLLED
  for (int key = visible_range.first; key < visible_range.end; key += kKeys) {
    dispatch_bool(can_use_fast_path && all_visible(params, visible_range.end, first, kQueries, key, kKeys),
                  [&](auto fast_path) {
                    constexpr bool kFastPath = decltype(fast_path)::value;
                    pipeline.acquire(thread, load);
                    Accumulator p[kWarpHeads][kRowTiles][kKeys / 8];
                    MH_FOR (o, kWarpHeads) {
                      const int j = warp_head + o;
                      if (j >= params.heads) break;
                      multiply_row_tiles<kSize, kRowTiles, kKeys>(
                          thread, query_rows + j * kQueries * kStride, pipeline.current() + j * kKeys * kStride,
                          [&](int row_tile, Accumulator(&products)[Sizes::kKeys / 8]) {
                            const int query = first + 16 * row_tile;
                            to_probabilities<kFastPath>(thread, params, {query, key, visible_range.end},
                                                        lse2[o][row_tile], products);
                            MH_FOR (n, kKeys / 8) {
                              MH_FOR (e, 4) sum[o][row_tile][e / 2] += products[n].x[e];
                              p[o][row_tile][n] = products[n];
                            }
                            if (!kFastPath && params.has_dropout() && params.dropout_before_mixing)
                              apply_dropout(params, b, j, query + g, key + 2 * t, products);
                            probabilities.template put<T>(thread, j, row_tile, products);
                          });
                    }
                    pipeline.release();
                    pipeline.acquire(thread, load);
                    MH_FOR (o, kWarpHeads) {
                      const int i = warp_head + o;
                      if (i >= params.value_heads) break;
                      multiply_row_tiles<kSize, kRowTiles, kKeys>(
                          thread, dout_rows + i * kQueries * kStride, pipeline.current() + i * kKeys * kStride,
                          [&](int row_tile, Accumulator(&dp)[Sizes::kKeys / 8]) {
                            if (!kFastPath && params.has_dropout() && !params.dropout_before_mixing)
                              apply_dropout(params, b, i, first + 16 * row_tile + g, key + 2 * t, dp);
                            gradients.template put<T>(thread, i, row_tile, dp);
                          });
                    }
                    pipeline.release();
                    thread.barrier();
                    MH_FOR (u, Sizes::kWarpProducts)
                      accumulate_head_pairs<T, Traits::kMatrixHeads>(thread, pair_accum[u], probabilities, gradients,
                                                                     Traits::query_of(thread.warp(), u), params.heads,
                                                                     params.value_heads);
                    mix_queries<Traits, T, T, true>(thread, gradients, params.value_heads, params.heads, matrices);
                    thread.barrier();
                    MH_FOR (o, kWarpHeads) {
                      const int j = warp_head + o;
                      if (j >= params.heads) break;
                      MH_FOR (row_tile, kRowTiles)
                        MH_FOR (c, kKeys / 16) {
                          Accumulator dp[2];
                          gradients.template get<T>(thread, j, row_tile, 16 * c, dp);
                          if (!kFastPath && params.has_dropout() && params.dropout_before_mixing)
                            apply_dropout(params, b, j, first + 16 * row_tile + g, key + 16 * c + 2 * t, dp);
                          MH_FOR (n, 2)
                            MH_FOR (e, 4) delta[o][row_tile][e / 2] += p[o][row_tile][2 * c + n].x[e] * dp[n].x[e];
                        }
                    }
                  });
  }
  thread.template wait_group<0>();
  thread.barrier();
  auto* const inv_sums = reinterpret_cast<float*>(memory);  // (heads, kQueries): 1 / sum of the probabilities, or 0
  MH_FOR (o, kWarpHeads) {
    const int j = warp_head + o;
    if (j >= params.heads) break;
    MH_FOR (row_tile, kRowTiles)
      MH_FOR (r, 2) {
        const float prob_sum = row_sum(thread, sum[o][row_tile][r]), delta_sum = row_sum(thread, delta[o][row_tile][r]);
        const int row = 16 * row_tile + g + 8 * r;
        const float inv_sum = prob_sum > 0 ? 1 / prob_sum : 0;
        if (t != 0) continue;
        inv_sums[j * kQueries + row] = inv_sum;
        if (first + row < queries)
          tensors.query_stats[(b * params.heads + j) * queries + first + row] = {lse2[o][row_tile][r], inv_sum,
                                                                                 delta_sum * inv_sum, 0};
      }
  }
  thread.barrier();
  MH_FOR (u, Sizes::kWarpProducts)
    MH_FOR (c, Traits::kMatrixHeads / 8)
      MH_FOR (e, 4) {
        const int query = Traits::query_of(thread.warp(), u) + (Traits::kMatrixHeads == 8 ? e / 2 : 0),
                  j = g + (Traits::kMatrixHeads == 16 ? e / 2 * 8 : 0), i = 8 * c + 2 * t + e % 2;
        if (j >= params.heads || i >= params.value_heads) continue;
        pair_accum[u][c].x[e] *= inv_sums[j * kQueries + query];
        if (params.matrix_query_stride != 0 && first + query < queries)
          tensors.dm[((b * queries + first + query) * params.heads + j) * params.value_heads + i] =
              pair_accum[u][c].x[e];
      }
  if (params.matrix_query_stride != 0) return;
  // For a shared matrix, sums the gradients over the queries of the block: first over the queries of each warp, then
  // over the warps in order.
  float* const warp_sums = inv_sums + params.heads * kQueries;  // (warps, heads, value_heads)
  const int num_elements = params.heads * params.value_heads;
  MH_FOR (c, Traits::kMatrixHeads / 8)
    MH_FOR (e, 4) {
      float warp_sum = 0;
      MH_FOR (u, Sizes::kWarpProducts)
        warp_sum += pair_accum[u][c].x[e] + (Traits::kMatrixHeads == 8 ? pair_accum[u][c].x[e ^ 2] : 0);
      const int j = g + (Traits::kMatrixHeads == 16 ? e / 2 * 8 : 0), i = 8 * c + 2 * t + e % 2;
      if ((Traits::kMatrixHeads == 16 || e < 2) && j < params.heads && i < params.value_heads)
        warp_sums[thread.warp() * num_elements + j * params.value_heads + i] = warp_sum;
    }
  thread.barrier();
  for (int n = thread.index(); n < num_elements; n += thread.threads()) {
    float total = 0;
    for (int warp = 0; warp < Traits::kWarps; ++warp) total += warp_sums[warp * num_elements + n];
    tensors.dm[(b * order.num_tiles + block.tile) * num_elements + n] = total;
  }
}

// The tile sizes and the plan of row_mix_query_gradient(). Traits: an instance of RowMixTraits.
template <class Traits>
struct RowMixQueryGradientTiles : RowMixQueryTiles<Traits, Traits::kQueries, 16> {
  static constexpr RowMixPlan plan(const AttentionParams& params, int max_shared_bytes) {
    return RowMixQueryGradientTiles::plan_of(params, params.heads + params.value_heads, 1, max_shared_bytes);
  }
};

// Computes tensors.dq. Grid: (order.num_blocks()).
template <class Traits, class T, class Thread>
MH_DEVICE void row_mix_query_gradient(const Thread& thread, const AttentionParams& params, const RowMixPlan& plan,
                                      const BlockOrder& order, const KernelTensors<T>& tensors, void* memory) {
  using Sizes = RowMixQueryGradientTiles<Traits>;
  using Tile = typename Sizes::Tile;
  constexpr int kSize = Traits::kSize, kStride = Traits::kStride, kWarpHeads = Traits::kWarpHeads,
                kRowTiles = Tile::kRowTiles, kKeys = Sizes::kKeys;
  const BlockOrder::Position block = order.position(thread, true);
  const int64_t b = block.batch_row;
  const int queries = static_cast<int>(params.queries), first = block.tile * Traits::kQueries, g = thread.lane() / 4,
            t = thread.lane() % 4, warp_head = thread.warp() * kWarpHeads;
  const IndexRange visible_range = visible_keys(params, b, first, Traits::kQueries);

  auto* const query_rows = static_cast<T*>(memory);
  T* const dout_rows = query_rows + params.heads * Traits::kQueries * kStride;
  SmemPipeline<T> pipeline{dout_rows + params.value_heads * Traits::kQueries * kStride, plan.num_stages,
                           Sizes::stage_elements(params)};
  const Tile tile = Tile::template create<Traits::kMatrixHeads>(thread, params, pipeline.end());
  const KeyLoader<Traits, T, kKeys> key_loader(thread, params, tensors, b);
  const ValueLoader<Traits, T, kKeys> value_loader(thread, params, tensors, b);
  AlternatingLoads<Traits, T, kKeys> loads{value_loader, key_loader, visible_range};
  const auto load = [&](T* stage) { loads.load(thread, stage); };
  QueryLoader<Traits, T, Traits::kQueries>(thread, params, tensors, b).load(thread, query_rows, first, queries);
  DoutLoader<Traits, T, Traits::kQueries>(thread, params, tensors, b).load(thread, dout_rows, first, queries);
  pipeline.fill(thread, load);

  RowStats stats[kWarpHeads][kRowTiles];
  MH_FOR (o, kWarpHeads)
    MH_FOR (row_tile, kRowTiles)
      if (warp_head + o < params.heads)
        stats[o][row_tile].read(thread, tensors.query_stats + (b * params.heads + warp_head + o) * queries,
                                first + 16 * row_tile + g, queries);
  MixMatrix<T, Traits::kMatrixHeads> matrices[Sizes::kWarpProducts];
  MH_FOR (u, Sizes::kWarpProducts)
    matrices[u].template read<false>(thread, params, matrices_of_product<Traits>(thread, params, b, first, queries, u));

  Accumulator dq_accum[kWarpHeads][kRowTiles][kSize / 8];
  const bool can_use_fast_path = allows_fast_path(params);
  MH_ROLLED
  for (int key = visible_range.first; key < visible_range.end; key += kKeys) {
    dispatch_bool(
        can_use_fast_path && all_visible(params, visible_range.end, first, Traits::kQueries, key, kKeys),
        [&](auto fast_path) {
          constexpr bool kFastPath = decltype(fast_path)::value;
          pipeline.acquire(thread, load);
          MH_FOR (o, kWarpHeads) {
            const int i = warp_head + o;
            if (i >= params.value_heads) break;
            multiply_row_tiles<kSize, kRowTiles, kKeys>(
                thread, dout_rows + i * Traits::kQueries * kStride, pipeline.current() + i * kKeys * kStride,
                [&](int row_tile, Accumulator(&dp)[Sizes::kKeys / 8]) {
                  if (!kFastPath && params.has_dropout() && !params.dropout_before_mixing)
                    apply_dropout(params, b, i, first + 16 * row_tile + g, key + 2 * t, dp);
                  tile.template put<T>(thread, i, row_tile, dp);
                });
          }
          pipeline.release();
          pipeline.acquire(thread, load);
          mix_queries<Traits, T, T, true>(thread, tile, params.value_heads, params.heads, matrices);
          thread.barrier();
          MH_FOR (o, kWarpHeads) {
            const int j = warp_head + o;
            if (j >= params.heads) break;
            const T* const key_rows = pipeline.current() + j * kKeys * kStride;
            const auto dropout = [&](int row_tile, int column, Accumulator(&dp)[2]) {
              apply_dropout(params, b, j, first + 16 * row_tile + g, key + column + 2 * t, dp);
            };
            multiply_row_tiles<kSize, kRowTiles, kKeys>(
                thread, query_rows + j * Traits::kQueries * kStride, key_rows,
                [&](int row_tile, Accumulator(&p)[Sizes::kKeys / 8]) {
                  Accumulator slopes[Sizes::kKeys / 8];
                  to_probabilities_and_slopes<kFastPath>(
                      thread, params, {first + 16 * row_tile, key, visible_range.end}, stats[o][row_tile], p, slopes);
                  if (!kFastPath && params.has_dropout() && params.dropout_before_mixing)
                    to_logit_gradients<T, true>(thread, tile, j, row_tile, stats[o][row_tile], slopes, dropout);
                  else to_logit_gradients<T, false>(thread, tile, j, row_tile, stats[o][row_tile], slopes, dropout);
                });
            thread.warp_barrier();
            accumulate<kSize, T, false>(thread, dq_accum[o], tile, j, key_rows, NoDropout{});
          }
          pipeline.release();
        });
  }
  thread.template wait_group<0>();
  thread.barrier();
  MH_FOR (o, kWarpHeads) {
    const int j = warp_head + o;
    if (j >= params.heads) break;
    MH_FOR (row_tile, kRowTiles)
      store_rows<kSize, kStride>(thread, query_rows + thread.warp() * 16 * kStride, dq_accum[o][row_tile], {1, 1},
                                 matrix_of_head(tensors.dq, b, j, queries, params.key_size, params.has_aligned_rows),
                                 first + 16 * row_tile);
  }
}

// The tile sizes and the plan of row_mix_key_gradient(). Traits: an instance of RowMixTraits.
template <class Traits>
struct RowMixKeyGradientTiles {
  static constexpr int kKeys = floor_to_row_tiles(2048 / (Traits::kWarpHeads * Traits::kSize), 32);  // keys of a block
  using Tile = MixTile<16, kKeys>;
  static constexpr int kWarpProducts = 16 / Traits::kQueriesPerProduct / Traits::kWarps;
  static constexpr int stage_elements(const AttentionParams& params) {
    return (params.heads + params.value_heads) * 16 * Traits::kStride;
  }
  static constexpr RowMixPlan plan(const AttentionParams& params, int max_shared_bytes) {
    return {(params.heads + params.value_heads) * kKeys * Traits::kStride * 2, stage_elements(params) * 2,
            2 * Tile::template bytes<Traits::kMatrixHeads>(params), max_shared_bytes};
  }
};

// Computes `accum += Xᵀ · rows` for `accum` (row tiles of keys, 16, kSize), where X (16 queries, keys) is head `head`
// of `tile`, and `rows` (16, kSize) is in shared memory. If kDropout, first applies dropout to X in `tile`: calls
// dropout(0, column, values) as accumulate() does. Called by all lanes of a warp.
template <int kSize, class T, bool kDropout, class Tile, class Thread, class DropoutFn>
MH_DEVICE void accumulate_transposed(const Thread& thread, Accumulator (&accum)[Tile::kKeys / 16][kSize / 8],
                                     const Tile& tile, int head, const T* rows, const DropoutFn& dropout) {
  constexpr int kStride = kSize + kPad;
  if constexpr (kDropout) {
    MH_FOR (c, Tile::kKeys / 16) {
      Accumulator values[2];
      tile.template get<T>(thread, head, 0, 16 * c, values);
      dropout(0, 16 * c, values);
      FragmentA<T> frag_a;
      round_to_fragment_a(thread, frag_a, values[0], values[1]);
      thread.warp_barrier();
      T* const to = tile.template at<T>(head, 0, 16 * c + thread.lane() % 4 * 2) + thread.lane() / 4 * Tile::kStride;
      MH_FOR (i, 4) *reinterpret_cast<uint32_t*>(to + i % 2 * 8 * Tile::kStride + i / 2 * 8) = frag_a.x[i];
    }
    thread.warp_barrier();
  }
  FragmentB<T> frag_b[kSize / 8];
  MH_FOR (n, kSize / 16) {
    FragmentB<T> pair[2];
    load(thread, pair, rows + n * 16, kStride);
    frag_b[2 * n] = pair[0], frag_b[2 * n + 1] = pair[1];
  }
  MH_FOR (row_tile, Tile::kKeys / 16) {
    FragmentA<T> frag_a;
    load_transposed_a(thread, frag_a, tile.template at<T>(head, 0, 16 * row_tile), Tile::kStride);
    MH_FOR (n, kSize / 8) multiply(thread, accum[row_tile][n], frag_a, frag_b[n]);
  }
}

// Computes tensors.dk and tensors.dv. dk has, for each query head j, the gradient of the keys that head j reads; dv
// has, for each value head i, the gradient of the values that head i reads. If tensors.has_one_reader_per_kv_head, the
// gradients are written to heads params.k_head(j) of dk and params.v_head(i) of dv, and otherwise to heads j and
// i. Padding keys get zeros. Grid: (order.num_blocks()).
template <class Traits, class T, class Thread>
MH_DEVICE void row_mix_key_gradient(const Thread& thread, const AttentionParams& params, const RowMixPlan& plan,
                                    const BlockOrder& order, const KernelTensors<T>& tensors, void* memory) {
  using Sizes = RowMixKeyGradientTiles<Traits>;
  using Tile = typename Sizes::Tile;
  using Probability = typename Traits::Probability;
  constexpr int kSize = Traits::kSize, kStride = Traits::kStride, kWarpHeads = Traits::kWarpHeads, kKeys = Sizes::kKeys;
  const BlockOrder::Position block = order.position(thread, false);
  const int64_t b = block.batch_row;
  const int keys = static_cast<int>(params.keys), first = block.tile * kKeys, g = thread.lane() / 4,
            t = thread.lane() % 4, warp_head = thread.warp() * kWarpHeads, queries = static_cast<int>(params.queries);
  const int num_unpadded_keys = num_unpadded_keys_of(params, b, keys);
  const IndexRange query_range = attending_queries(params, b, first, kKeys, keys);

  auto* const key_rows = static_cast<T*>(memory);
  T* const value_rows = key_rows + params.heads * kKeys * kStride;
  SmemPipeline<T> pipeline{value_rows + params.value_heads * kKeys * kStride, plan.num_stages,
                           Sizes::stage_elements(params)};
  const Tile probabilities = Tile::template create<Traits::kMatrixHeads>(thread, params, pipeline.end(), 0),
             gradients = Tile::template create<Traits::kMatrixHeads>(thread, params, pipeline.end(), 1);
  const QueryLoader<Traits, T, 16> query_loader(thread, params, tensors, b);
  const DoutLoader<Traits, T, 16> dout_loader(thread, params, tensors, b);
  int next_query = query_range.first;
  const auto load = [&](T* to) {
    if (next_query < query_range.end) {
      query_loader.load(thread, to, next_query, query_range.end);
      dout_loader.load(thread, to + params.heads * 16 * kStride, next_query, query_range.end);
    }
    next_query += 16;
    thread.commit_group();
  };
  KeyLoader<Traits, T, kKeys>(thread, params, tensors, b).load(thread, key_rows, first, keys);
  ValueLoader<Traits, T, kKeys>(thread, params, tensors, b).load(thread, value_rows, first, keys);
  pipeline.fill(thread, load);

  MixMatrix<Probability, Traits::kMatrixHeads> probability_matrices[Sizes::kWarpProducts];
  MixMatrix<T, Traits::kMatrixHeads> gradient_matrices[Sizes::kWarpProducts];
  const auto read_tile_matrices = [&](int query) {
    MH_FOR (u, Sizes::kWarpProducts) {
      const ProductMatrices matrices = matrices_of_product<Traits>(thread, params, b, query, queries, u);
      probability_matrices[u].template read<true>(thread, params, matrices);
      gradient_matrices[u].template read<false>(thread, params, matrices);
    }
  };
  read_tile_matrices(query_range.first);

  Accumulator dk_accum[kWarpHeads][kKeys / 16][kSize / 8], dv_accum[kWarpHeads][kKeys / 16][kSize / 8];
  const bool can_use_fast_path = allows_fast_path(params);
  MH_ROLLED
  for (int query = query_range.first; query < query_range.end; query += 16) {
    dispatch_bool(
        can_use_fast_path && all_visible(params, num_unpadded_keys, query, 16, first, kKeys), [&](auto fast_path) {
          constexpr bool kFastPath = decltype(fast_path)::value;
          pipeline.acquire(thread, load);
          const T *const query_rows = pipeline.current(), *const dout_rows = query_rows + params.heads * 16 * kStride;
          RowStats stats[kWarpHeads];
          Accumulator slopes[kWarpHeads][kKeys / 8];
          // The products for P and for dP̄ are both issued before the exponentials of P, so that the tensor cores
          // compute dP̄ during the exponentials.
          MH_FOR (o, kWarpHeads) {
            const int head = warp_head + o;
            Accumulator p[kKeys / 8], dp[kKeys / 8];
            if (head < params.heads) {
              stats[o].read(thread, tensors.query_stats + (b * params.heads + head) * queries, query + g, queries);
              multiply_transposed<kSize, kStride, kSize / 16>(thread, p, query_rows + head * 16 * kStride,
                                                              key_rows + head * kKeys * kStride);
            }
            if (head < params.value_heads)
              multiply_transposed<kSize, kStride, kSize / 16>(thread, dp, dout_rows + head * 16 * kStride,
                                                              value_rows + head * kKeys * kStride);
            if (head < params.heads) {
              to_probabilities_and_slopes<kFastPath>(thread, params, {query, first, num_unpadded_keys}, stats[o], p,
                                                     slopes[o]);
              if (!kFastPath && params.has_dropout() && params.dropout_before_mixing)
                apply_dropout(params, b, head, query + g, first + 2 * t, p);
              probabilities.template put<Probability>(thread, head, 0, p);
            }
            if (head < params.value_heads) {
              if (!kFastPath && params.has_dropout() && !params.dropout_before_mixing)
                apply_dropout(params, b, head, query + g, first + 2 * t, dp);
              gradients.template put<T>(thread, head, 0, dp);
            }
          }
          if (params.matrix_query_stride != 0) read_tile_matrices(query);
          thread.barrier();
          mix_queries<Traits, Probability, T, true>(thread, probabilities, params.heads, params.value_heads,
                                                    probability_matrices);
          mix_queries<Traits, T, T, true>(thread, gradients, params.value_heads, params.heads, gradient_matrices);
          thread.barrier();
          MH_FOR (o, kWarpHeads) {
            const int head = warp_head + o;
            const auto dropout = [&](int, int column, Accumulator(&values)[2]) {
              apply_dropout(params, b, head, query + g, first + column + 2 * t, values);
            };
            if (head < params.value_heads) {
              if (!kFastPath && params.has_dropout() && !params.dropout_before_mixing)
                accumulate_transposed<kSize, T, true>(thread, dv_accum[o], probabilities, head,
                                                      dout_rows + head * 16 * kStride, dropout);
              else
                accumulate_transposed<kSize, T, false>(thread, dv_accum[o], probabilities, head,
                                                       dout_rows + head * 16 * kStride, dropout);
            }
            if (head < params.heads) {
              if (!kFastPath && params.has_dropout() && params.dropout_before_mixing)
                to_logit_gradients<T, true>(thread, gradients, head, 0, stats[o], slopes[o], dropout);
              else to_logit_gradients<T, false>(thread, gradients, head, 0, stats[o], slopes[o], dropout);
              thread.warp_barrier();
              accumulate_transposed<kSize, T, false>(thread, dk_accum[o], gradients, head,
                                                     query_rows + head * 16 * kStride, NoDropout{});
            }
          }
          pipeline.release();
        });
  }
  thread.template wait_group<0>();
  thread.barrier();
  T* const staging = key_rows + thread.warp() * 16 * kStride;
  MH_FOR (o, kWarpHeads) {
    const int head = warp_head + o;
    MH_FOR (row_tile, kKeys / 16) {
      if (head < params.heads)
        store_rows<kSize, kStride>(
            thread, staging, dk_accum[o][row_tile], {1, 1},
            matrix_of_head(tensors.dk, b, tensors.has_one_reader_per_kv_head ? params.k_head(head) : head, keys,
                           params.key_size, params.has_aligned_rows),
            first + 16 * row_tile);
      if (head < params.value_heads)
        store_rows<kSize, kStride>(
            thread, staging, dv_accum[o][row_tile], {1, 1},
            matrix_of_head(tensors.dv, b, tensors.has_one_reader_per_kv_head ? params.v_head(head) : head, keys,
                           params.value_size, params.has_aligned_rows),
            first + 16 * row_tile);
    }
  }
}

}  // namespace mh::kernels
