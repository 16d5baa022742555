// Backward pass of attention with head mixing, for query heads j and value heads i. With dP̄_i = dO_i V_iᵀ:
//
//   G[j, i] = Σ_s P_j dP̄_i for each query, which is the gradient of its mixing matrix m
//   dP_j = Σ_i m[j, i] dP̄_i,  D_j = Σ_i m[j, i] G[j, i] (`delta`)
//   dS_j = P_j (dP_j - D_j), the gradient of the logits
//
// Each of three kernels recomputes the probabilities P from the log-sum-exp: head_mixing_matrix_gradient() computes G;
// head_mixing_query_gradient() computes dQ and loops over the keys; head_mixing_key_gradient() (key_gradient.h)
// computes dK and dV and loops over the queries. Between the first two, head_mixing_query_stats() divides G by the sums
// of the probabilities, and computes D. No kernel accumulates in global memory.
//
// The log-sum-exp has a rounding error of 2^-24 times the largest logit. Therefore the recomputed probabilities are
// divided by their sum, which head_mixing_matrix_gradient() computes; otherwise the gradients of a query's logits would
// not sum to zero if the logits are large.
//
// Tiling: a block of at most 8 warps computes one or more row tiles of 16 queries of a batch row, and loops over tiles
// of 16 keys. The warps of a row tile compute dP̄ (16, 16) of the value heads in turn, and exchange it as fragments;
// then each warp computes its kWarpHeads query heads. Shared memory (head_mixing/plan.h): Q of all query heads and dO,
// unless plan.num_resident_tiles is 0; the pipeline stages, each with V or K of all heads or of a group of heads; a
// fragment for each value head; with relative positions, q + v, windows of r and products with windows.
// __launch_bounds__ allows 255 registers.
//
// - head_mixing_matrix_gradient(): a block computes a chunk of at most 8 value heads, or 4 for fp32 tensors, and holds
//   dO and fragments only of these heads. A warp has 4 query heads, or 2 for fp32 tensors. A lane has 2 * kWarpHeads *
//   (kChunkHeads + 1) fp32 accumulators of G and of the sums of probabilities: 72, or 20 for fp32 tensors.
// - head_mixing_query_stats(): a block of 128 threads; a thread computes one query of one query head. No shared memory.
// - head_mixing_query_gradient(): a warp has 1 to 4 query heads. A lane has kWarpHeads * kColumns / 2 accumulators of
//   dQ and, with relative positions, as many of the gradient of q + v. The total for head size 64 and 16-bit types is
//   128, with or without relative positions. For 16-bit types, shared memory also holds the transpose of a mixing
//   matrix that all queries share.
//
// For 16 heads of size 64 in bf16 on an A100, whose blocks have up to 163 KiB of shared memory, blocks have one row
// tile of 4 warps and 2 stages. In head_mixing_matrix_gradient() a block takes 130 KiB, and 512 queries of a batch row
// take 64 blocks, 32 for each of two chunks; in head_mixing_query_gradient() these are 153 KiB and 32 blocks.
#pragma once

#include "cuda/head_mixing/relative.h"

namespace mh::kernels {

// Computes dP̄ of a warp's 16 queries and the 16 keys of a tile, for the value heads of a group, and writes the
// fragment of head i to index i - (first head of the operands) of `exchange`. The warps of a row tile divide the heads
// among them.
template <int kSize, int kPrefetch, class Thread, class T, class Operands>
MH_DEVICE void exchange_gradients(const Thread& thread, const AttentionParams& params, LanePosition position,
                                  const RowTileOperands<Operands>& operands, HeadGroup<T> group,
                                  const FragmentExchange<T>& exchange) {
  MH_ROLLED  // the products of two iterations do not fit in the registers
  for (int i = group.first + operands.warp.row_tile_warp; i < group.end; i += operands.plan.warps_per_row_tile) {
    Accumulator x[2];
    multiply_transposed<kSize, Operands::kStride, kPrefetch>(thread, x, operands.resident_rows(group, i),
                                                             operands.streamed_rows(group, i));
    if (params.has_dropout() && !params.dropout_before_mixing)
      apply_dropout(params, position.b, i, position.query, position.key, x);
    exchange.put(thread, i - operands.operands.heads.first, x);
  }
}

// The tile sizes and the plan of head_mixing_matrix_gradient().
template <class T, int kSize, bool kRelative = false>
struct HeadMixingMatrixGradientTiles {
  static constexpr int kStride = kSize + kPad, kWarpHeads = sizeof(T) == 4 ? 2 : 4;
  static constexpr int kPrefetch = kRelative ? 2 : kHeadMixingPrefetch<T, kSize>;
  static constexpr int kChunkHeads = sizeof(T) == 4 ? 4 : 8;  // value heads of a chunk, whose sums are in registers
  static constexpr int chunk_size(const AttentionParams& params) {
    return params.value_heads < kChunkHeads ? params.value_heads : kChunkHeads;
  }
  static constexpr int num_chunks(const AttentionParams& params) { return ceil_div(params.value_heads, kChunkHeads); }
  static constexpr HeadMixingPlan plan(const AttentionParams& params, int max_shared_bytes) {
    const int chunk_heads = chunk_size(params), max_heads = params.heads > chunk_heads ? params.heads : chunk_heads,
              tensors_per_head = kRelative ? 2 : 1;
    return head_mixing_plan<T>({.heads = params.heads,
                                .max_heads_per_warp = kWarpHeads,
                                .num_resident_tiles = tensors_per_head * params.heads + chunk_heads,
                                .max_stage_heads = max_heads,
                                .exchanged_fragments = FragmentExchange<T>::num_fragments(chunk_heads),
                                .resident_tensors = tensors_per_head,
                                .has_window = kRelative},
                               kStride, max_shared_bytes);
  }
};

// Computes tensors.dm, which is G before the division by the sums of the probabilities, and tensors.prob_sums, the sums
// of the probabilities that are recomputed from tensors.lse. kRelative: tensors.q is q + u, and tensors.q_v is q + v.
// Grid: (order.num_blocks(), 1, plan.num_head_blocks * chunks of value heads).
template <class T, int kSize, bool kRelative, class Thread>
MH_DEVICE void head_mixing_matrix_gradient(const Thread& thread, const AttentionParams& params,
                                           const HeadMixingPlan& plan, const BlockOrder& order,
                                           const KernelTensors<T>& tensors, void* memory) {
  using Traits = HeadMixingMatrixGradientTiles<T, kSize, kRelative>;
  const StridedTensor<const T>&v = tensors.v, &dout = tensors.dout;
  constexpr int kStride = Traits::kStride, kWarpHeads = Traits::kWarpHeads, kChunkHeads = Traits::kChunkHeads;
  const BlockOrder::Position block_position = order.position(thread, true);
  const int64_t b = block_position.batch_row;
  const int queries = static_cast<int>(params.queries);
  const WarpPosition warp(thread, plan);
  const int first = block_position.tile * warp.rows_per_block;
  const LaneQueries lane_queries(params, params.mixing_matrix, b, first + 16 * warp.row_tile, warp.g);
  const int first_head = thread.block_z() % plan.num_head_blocks * plan.warps_per_row_tile * kWarpHeads,
            warp_head = first_head + warp.row_tile_warp * kWarpHeads,
            next_first_head = first_head + plan.warps_per_row_tile * kWarpHeads;
  const HeadBlock heads{first_head, warp_head, next_first_head < params.heads ? next_first_head : params.heads};
  const int chunk_head = thread.block_z() / plan.num_head_blocks * kChunkHeads,
            num_chunk_heads =
                params.value_heads - chunk_head < kChunkHeads ? params.value_heads - chunk_head : kChunkHeads;
  const IndexRange visible_range = visible_keys(params, b, first, warp.rows_per_block);

  // Resident rows: q (with kRelative, q + u and q + v), then dout.
  auto* const resident_smem = static_cast<T*>(memory);
  T* const dout_rows = resident_smem + (kRelative ? 2 : 1) * params.heads * warp.rows_per_block * kStride;
  const HeadMixingMemory<T> block_memory(plan, resident_smem, kStride);
  SmemPipeline<T> pipeline = block_memory.pipeline;
  const FragmentExchange<T> exchange(block_memory.template fragments<T>(
      warp.row_tile * FragmentExchange<T>::num_fragments(Traits::chunk_size(params))));
  [[maybe_unused]] float* const window_products = block_memory.warp_products(
      thread, plan.num_row_tiles * FragmentExchange<T>::num_fragments(Traits::chunk_size(params)));
  using Operands = QueryOperands<T, kSize, kRelative>;
  const Operands score_operands = logit_operands<T, kSize, kRelative>(params, tensors, b, heads.range(), resident_smem);
  const HeadRange chunk{chunk_head, chunk_head + num_chunk_heads};
  const Operands gradient_operands{{v, b, params.v_head_of}, {dout, b, nullptr}, chunk, params.value_size, dout_rows};
  const RowTileOperands<Operands> row_tile_score_operands{score_operands, plan, warp},
      row_tile_gradient_operands{gradient_operands, plan, warp};
  const TileRowRange resident_range{first, queries};
  const auto tiles = tiles_of_keys<kRelative>(params, visible_range, first + warp.rows_per_block - 1);
  LoadSchedule<Operands, 2, decltype(tiles)> schedule({gradient_operands, score_operands}, resident_range, tiles);
  const auto load = [&](T* stage) { schedule.load(thread, params, plan, stage); };
  if (plan.num_resident_tiles > 0) {
    score_operands.load_all_resident_rows(thread, params, plan, resident_smem, resident_range);
    gradient_operands.load_all_resident_rows(thread, params, plan, dout_rows, resident_range);
  }
  pipeline.fill(thread, load);

  float pair_sums[kWarpHeads][kChunkHeads][2] = {}, head_sums[kWarpHeads][2] = {};
  int tile_index = 0;
  for (StreamedTile tile = tiles(0); tile.valid(); tile = tiles(++tile_index)) {
    const int key = tile.first;
    for_each_head_group(thread, pipeline, plan.heads_per_stage, chunk, load, [&](HeadGroup<T> group) {
      exchange_gradients<kSize, Traits::kPrefetch>(thread, params, {b, lane_queries.query, key + 2 * warp.t},
                                                   row_tile_gradient_operands, group, exchange);
    });
    Accumulator p[kWarpHeads][2];
    for_each_head_group(thread, pipeline, plan.heads_per_stage, heads.range(), load, [&](HeadGroup<T> group) {
      MH_FOR (o, kWarpHeads) {
        if (warp_head + o < group.first || warp_head + o >= group.end) continue;
        const int j = warp_head + o;
        multiply_queries<kSize, kRelative, Traits::kPrefetch>(thread, p[o], row_tile_score_operands, group, j,
                                                              window_products);
        to_probabilities(thread, params, lane_queries, tile, tensors.lse + (b * params.heads + j) * params.queries,
                         p[o]);
        MH_FOR (e, 4) head_sums[o][e / 2] += p[o][0].x[e] + p[o][1].x[e];
      }
    });
    if (params.has_dropout() && params.dropout_before_mixing)
      apply_dropout_to_tiles(params, {b, lane_queries.query, key + 2 * warp.t}, heads, p);
    // The gradients of all heads are complete, since the second for_each_head_group() began with a barrier.
    MH_FOR (i, kChunkHeads) {
      if (i >= num_chunk_heads) break;
      Accumulator dp[2];
      exchange.get(thread, i, dp);
      MH_FOR (o, kWarpHeads)
        MH_FOR (e, 4) pair_sums[o][i][e / 2] += p[o][0].x[e] * dp[0].x[e] + p[o][1].x[e] * dp[1].x[e];
    }
  }
  thread.template wait_group<0>();
  MH_FOR (o, kWarpHeads)
    MH_FOR (r, 2) {
      const bool is_valid = warp_head + o < params.heads && lane_queries.query + 8 * r < queries && warp.t == 0;
      const float sum = row_sum(thread, head_sums[o][r]);
      if (is_valid && chunk_head == 0)
        tensors.prob_sums[(b * params.heads + warp_head + o) * params.queries + lane_queries.query + 8 * r] = sum;
      float* to =
          tensors.dm +
          ((b * params.queries + lane_queries.clamped_queries[r]) * params.heads + warp_head + o) * params.value_heads +
          chunk_head;
      MH_FOR (i, kChunkHeads) {
        const float pair = row_sum(thread, pair_sums[o][i][r]);
        if (is_valid && i < num_chunk_heads) to[i] = pair;
      }
    }
}

// Rounds a weight of the mixing matrix as the mixing of gradients rounds it: to 16 bits if the mixing uses
// tensor cores (SharedMatrix). Delta must use the same rounded weights, so that it equals Σ P dP. scale: the scale of
// fp16 weights.
struct WeightRounding {
  bool to_bf16, to_fp16;
  float scale = 1;
  template <class T>
  static constexpr WeightRounding for_params(const AttentionParams& params) {
    const bool is_shared = params.matrix_query_stride == 0;
    return {is_shared && std::is_same_v<T, Bf16>, is_shared && std::is_same_v<T, Fp16>};
  }
  template <class Thread>
  MH_DEVICE float operator()(const Thread& thread, float x) const {
    float rounded = x, unused;
    if (to_bf16) thread.unpack(thread.pack(x, 0, Bf16{}), rounded, unused, Bf16{});
    if (to_fp16) thread.unpack(thread.pack(x / scale, 0, Fp16{}), rounded, unused, Fp16{});
    return rounded * scale;
  }
};

// Divides tensors.dm by tensors.prob_sums; computes tensors.query_stats, where delta = Σ_i m[j, i] G[j, i], and its
// kStatsPadding zero entries. One thread computes one entry of query_stats; blocks may have any size.
template <class Thread>
MH_DEVICE void head_mixing_query_stats(const Thread& thread, const AttentionParams& params,
                                       const AttentionTensors& tensors, WeightRounding rounding) {
  const int64_t i = static_cast<int64_t>(thread.block_x()) * thread.threads() + thread.index(),
                num_stats = tensors.batch * params.heads * params.queries;
  if (i >= num_stats + kStatsPadding) return;
  QueryStats stats{};
  if (i < num_stats) {
    const int64_t t = i % params.queries, j = i / params.queries % params.heads, b = i / params.queries / params.heads;
    stats.lse2 = tensors.lse[i] * kLog2E, stats.inv_sum = tensors.prob_sums[i] > 0 ? 1 / tensors.prob_sums[i] : 0;
    float* pair_sums = tensors.dm + ((b * params.queries + t) * params.heads + j) * params.value_heads;
    const float* m =
        params.mixing_matrix + b * params.matrix_batch_stride + t * params.matrix_query_stride + j * params.value_heads;
    if (rounding.to_fp16) rounding.scale = floor_pow2(m, 1, params.value_heads);
    for (int64_t e = 0; e < params.value_heads; ++e) {
      pair_sums[e] *= stats.inv_sum;
      stats.delta += rounding(thread, m[e]) * pair_sums[e];
    }
  }
  tensors.query_stats[i] = stats;
}

// The tile sizes and the plan of head_mixing_query_gradient().
template <class T, int kSize, bool kRelative = false>
struct HeadMixingQueryGradientTiles {
  static constexpr int kPrefetch = kRelative || kHeadMixingPrefetch<T, kSize> < 2 ? 1 : 2;
  // Columns of dQ that a block computes, limited by the registers of a warp. With relative positions a warp has two
  // accumulators for each column.
  static constexpr int kColumns = (kRelative && kSize > 128) || kHasWideRows<T, kSize> ? kSize / 2 : kSize,
                       kColumnBlocks = kSize / kColumns;
  static constexpr int kStride = kSize + kPad, kRegisterHeads = max_warp_heads<T>(kRelative ? 2 * kColumns : kColumns);
  static constexpr int kWarpHeads = kRelative && kRegisterHeads > 2 ? 2 : kRegisterHeads;
  static constexpr HeadMixingPlan plan(const AttentionParams& params, int max_shared_bytes) {
    const int max_heads = params.heads > params.value_heads ? params.heads : params.value_heads,
              tensors_per_head = kRelative ? 2 : 1;
    return head_mixing_plan<T>({.heads = params.heads,
                                .max_heads_per_warp = kWarpHeads,
                                .num_resident_tiles = tensors_per_head * params.heads + params.value_heads,
                                .max_stage_heads = max_heads,
                                .exchanged_fragments = FragmentExchange<T>::num_fragments(params.value_heads),
                                .weight_rows = num_weight_rows(params.value_heads),
                                .resident_tensors = tensors_per_head,
                                .has_window = kRelative},
                               kStride, max_shared_bytes);
  }
};

// Computes tensors.dq, the gradient of tensors.q. kRelative: tensors.q is q + u, tensors.q_v is q + v, and
// tensors.dq_v, the gradient of tensors.q_v, is computed also. Grid: (order.num_blocks(), 1, plan.num_head_blocks *
// kColumnBlocks).
template <class T, int kSize, bool kRelative, class Thread>
MH_DEVICE void head_mixing_query_gradient(const Thread& thread, const AttentionParams& params,
                                          const HeadMixingPlan& plan, const BlockOrder& order,
                                          const KernelTensors<T>& tensors, void* memory) {
  using Traits = HeadMixingQueryGradientTiles<T, kSize, kRelative>;
  const StridedTensor<const T>&v = tensors.v, &dout = tensors.dout;
  constexpr int kStride = Traits::kStride, kWarpHeads = Traits::kWarpHeads, kColumns = Traits::kColumns;
  const BlockOrder::Position block_position = order.position(thread, true);
  const int64_t b = block_position.batch_row;
  const int queries = static_cast<int>(params.queries);
  const WarpPosition warp(thread, plan);
  const int first = block_position.tile * warp.rows_per_block;
  const LaneQueries lane_queries(params, params.mixing_matrix_transposed, b, first + 16 * warp.row_tile, warp.g);
  const int head_block = Traits::kColumnBlocks > 1 ? thread.block_z() % plan.num_head_blocks : thread.block_z();
  const int column = Traits::kColumnBlocks > 1 ? thread.block_z() / plan.num_head_blocks * kColumns : 0;
  const int first_head = head_block * plan.warps_per_row_tile * kWarpHeads,
            warp_head = first_head + warp.row_tile_warp * kWarpHeads,
            next_first_head = first_head + plan.warps_per_row_tile * kWarpHeads;
  const HeadBlock heads{first_head, warp_head, next_first_head < params.heads ? next_first_head : params.heads};
  const IndexRange visible_range = visible_keys(params, b, first, warp.rows_per_block);

  // Resident rows: dout, then q (with kRelative, q + u and q + v).
  auto* const resident_smem = static_cast<T*>(memory);
  T* const query_rows = resident_smem + params.value_heads * warp.rows_per_block * kStride;
  const HeadMixingMemory<T> block_memory(plan, resident_smem, kStride);
  SmemPipeline<T> pipeline = block_memory.pipeline;
  const FragmentExchange<T> exchange(
      block_memory.template fragments<T>(warp.row_tile * FragmentExchange<T>::num_fragments(params.value_heads)));
  if (warp.row_tile_warp == 0) exchange.zero_padding(thread, params.value_heads);
  [[maybe_unused]] float* const window_products =
      block_memory.warp_products(thread, plan.num_row_tiles * FragmentExchange<T>::num_fragments(params.value_heads));
  using Operands = QueryOperands<T, kSize, kRelative>;
  const Operands gradient_operands{
      {v, b, params.v_head_of}, {dout, b, nullptr}, {0, params.value_heads}, params.value_size, resident_smem};
  const Operands score_operands = logit_operands<T, kSize, kRelative>(params, tensors, b, heads.range(), query_rows);
  const RowTileOperands<Operands> row_tile_score_operands{score_operands, plan, warp},
      row_tile_gradient_operands{gradient_operands, plan, warp};
  const TileRowRange resident_range{first, queries};
  const auto tiles = tiles_of_keys<kRelative>(params, visible_range, first + warp.rows_per_block - 1);
  LoadSchedule<Operands, 2, decltype(tiles)> schedule({gradient_operands, score_operands}, resident_range, tiles);
  const auto load = [&](T* stage) { schedule.load(thread, params, plan, stage); };
  if (plan.num_resident_tiles > 0) {
    gradient_operands.load_all_resident_rows(thread, params, plan, resident_smem, resident_range);
    score_operands.load_all_resident_rows(thread, params, plan, query_rows, resident_range);
  }
  pipeline.fill(thread, load);
  const SharedMatrix<T, kWarpHeads> weights(thread, plan, memory,
                                            params.shared_matrix(params.mixing_matrix_transposed, b),
                                            {params.value_heads, params.heads}, heads);

  Accumulator dq_accum[kWarpHeads][kColumns / 8], dq_v_accum[kRelative ? kWarpHeads : 1][kRelative ? kColumns / 8 : 1];
  int tile_index = 0;
  for (StreamedTile tile = tiles(0); tile.valid(); tile = tiles(++tile_index)) {
    const int key = tile.first;
    for_each_head_group(thread, pipeline, plan.heads_per_stage, {0, params.value_heads}, load, [&](HeadGroup<T> group) {
      exchange_gradients<kSize, Traits::kPrefetch>(thread, params, {b, lane_queries.query, key + 2 * warp.t},
                                                   row_tile_gradient_operands, group, exchange);
    });
    Accumulator dp[kWarpHeads][2];
    const auto mix = [&] {
      if (weights.can_mix) weights.mix(thread, dp, exchange);
      else mix_rows(thread, dp, exchange, lane_queries.matrix, {params.value_heads, params.heads}, heads);
      if (params.has_dropout() && params.dropout_before_mixing)
        apply_dropout_to_tiles(params, {b, lane_queries.query, key + 2 * warp.t}, heads, dp);
    };
    for_each_head_group(thread, pipeline, plan.heads_per_stage, heads.range(), load, mix, [&](HeadGroup<T> group) {
      MH_FOR (o, kWarpHeads) {
        if (warp_head + o < group.first || warp_head + o >= group.end) continue;
        const int j = warp_head + o;
        Accumulator p[2], slopes[2];
        multiply_queries<kSize, kRelative, Traits::kPrefetch>(thread, p, row_tile_score_operands, group, j,
                                                              window_products);
        float stats[2][4];
        MH_FOR (r, 2)
          thread.read(
              stats[r],
              &tensors
                   .query_stats[(b * params.heads + warp_head + o) * params.queries + lane_queries.clamped_queries[r]]
                   .lse2);
        const float lse2[2] = {stats[0][0], stats[1][0]};
        to_probabilities<true>(thread, params, lane_queries, tile, lse2, p, slopes);
        MH_FOR (n, 2)
          MH_FOR (e, 4) slopes[n].x[e] *= stats[e / 2][1] * (dp[o][n].x[e] * weights.scale(o) - stats[e / 2][2]);
        multiply_add<kColumns, kStride>(thread, dq_accum[o], slopes,
                                        row_tile_score_operands.streamed_rows(group, j) + column);
        if constexpr (kRelative)
          multiply_add_sliding<T>(thread, dq_v_accum[o], slopes, window_products,
                                  Window<T, kSize>{row_tile_score_operands.window(group, j)}, 0, column);
      }
    });
  }
  store_in_rounds(thread, plan, warp, [&](int store_index) {
    const float factor[2] = {1, 1};
    const auto store_head = [&](int head, const Accumulator(&head_accum)[kColumns / 8], const StridedTensor<T>& to) {
      store_rows<kColumns, kStride>(
          thread, resident_smem + (store_index * warp.rows_per_block + warp.row_tile * 16) * kStride, head_accum,
          factor,
          {row_of(to, b, head, 0) + column, to.row_stride, queries, params.key_size - column, params.has_aligned_rows},
          first + 16 * warp.row_tile);
    };
    MH_FOR (o, kWarpHeads) {
      if (warp_head + o >= params.heads) break;
      store_head(warp_head + o, dq_accum[o], tensors.dq);
      if constexpr (kRelative) store_head(warp_head + o, dq_v_accum[o], tensors.dq_v);
    }
  });
}

}  // namespace mh::kernels
