// Forward pass of attention with head mixing: P̄_i = Σ_j m[j, i] P_j, out_i = P̄_i V_i. The mixing follows the softmax,
// so a first kernel, attention_forward() with kComputeOut = false, computes the log-sum-exp of each query head.
// head_mixing_forward() then recomputes the probabilities tile by tile from the log-sum-exp, mixes them, and multiplies
// the mixed probabilities by V.
//
// Tiling of head_mixing_forward(): a block of at most 8 warps computes one or more row tiles of 16 queries of a batch
// row, and loops over tiles of 16 keys. The warps of a row tile compute the probabilities (16, 16) of the query heads
// in turn, and exchange them as fragments. Then each warp mixes the fragments to its kWarpHeads value heads (1 to 4),
// and adds the products with V. If 8 warps cannot compute all value heads, several blocks divide the value heads, and
// each block computes the probabilities of all query heads.
//
// Shared memory (head_mixing/plan.h): Q of all query heads, unless plan.num_resident_tiles is 0; the pipeline stages,
// each with K or V of all heads or of a group of heads; a fragment for each query head; for 16-bit types, a mixing
// matrix that all queries share; with relative positions, q + v, windows of r and products with windows. A lane has
// kWarpHeads * kSize / 2 accumulators of outputs (128 for head size 64 and 16-bit types) and 8 * kWarpHeads of mixed
// probabilities; __launch_bounds__ allows 255 registers (cuda/resources.tsv lists the registers of each kernel).
//
// For 16 heads of size 64 in bf16 on an A100, whose blocks have up to 163 KiB of shared memory, a block has 2 row tiles
// of 4 warps each, 2 stages and 161 KiB; 512 queries take 16 blocks for each batch row and split of the keys.
//
// Tiling of combine_head_mixing_splits(): a block of 4 warps computes 4 queries of a value head, a warp computes one
// query, and a lane every 32nd column. There is no shared memory.
#pragma once

#include "cuda/head_mixing/relative.h"

namespace mh::kernels {

// The tile sizes and the plan of head_mixing_forward().
template <class T, int kSize, bool kRelative = false>
struct HeadMixingForwardTiles {
  static constexpr int kStride = kSize + kPad, kWarpHeads = max_warp_heads<T>(kSize);
  static constexpr int kPrefetch = kRelative ? 1 : kHeadMixingPrefetch<T, kSize>;
  using Probability = typename ExchangeType<T>::Probability;
  static constexpr HeadMixingPlan plan(const AttentionParams& params, int max_shared_bytes) {
    const int max_heads = params.heads > params.value_heads ? params.heads : params.value_heads,
              tensors_per_head = kRelative ? 2 : 1;
    return head_mixing_plan<T>({.heads = params.value_heads,
                                .max_heads_per_warp = kWarpHeads,
                                .num_resident_tiles = tensors_per_head * params.heads,
                                .max_stage_heads = max_heads,
                                .exchanged_fragments = FragmentExchange<T>::num_fragments(params.heads),
                                .weight_rows = num_weight_rows(params.heads),
                                .resident_tensors = tensors_per_head,
                                .has_window = kRelative},
                               kStride, max_shared_bytes);
  }
};

// Split-KV: the number of splits of the keys, a power of two, and their partial outputs (batch, value_heads, queries,
// num_splits, value_size), which combine_head_mixing_splits() sums.
struct HeadMixingSplits {
  int count, log2_count;  // count = 2^log2_count; a shift replaces a division, which would take too many registers
  float* partial_out;
  explicit HeadMixingSplits(const AttentionTensors& tensors)
      : count(tensors.num_splits), log2_count(0), partial_out(tensors.partial_out) {
    while (1 << log2_count < count) ++log2_count;
  }
  // The position of a partial output: batch row, value head, query and split.
  struct Position {
    int64_t b;
    int head, query, split;
  };
  // Returns the address of a partial output of value_size elements.
  MH_DEVICE float* partial_out_of(const AttentionParams& params, Position position) const {
    return partial_out +
           (((position.b * params.value_heads + position.head) * params.queries + position.query) * count +
            position.split) *
               params.value_size;
  }
  // Stores `accum` (16, 8 kColumnFragments), the accumulators of a warp, as partial outputs. position: position of the
  // first of a lane's two queries. queries: params.queries. factor: the factors of the two queries.
  template <int kColumnFragments, class Thread>
  MH_DEVICE void store(const Thread& thread, const AttentionParams& params, Position position, int queries,
                       const Accumulator (&accum)[kColumnFragments], const float (&factor)[2]) const {
    MH_FOR (r, 2) {
      if (position.query + 8 * r >= queries) continue;
      float* const to = partial_out_of(params, {position.b, position.head, position.query + 8 * r, position.split});
      MH_FOR (n, kColumnFragments)
        MH_FOR (e, 2)
          if (const int column = n * 8 + 2 * (thread.lane() % 4) + e; column < params.value_size)
            to[column] = accum[n].x[2 * r + e] * factor[r];
    }
  }
};

// Computes tensors.out. With several splits it writes only partial outputs, and combine_head_mixing_splits() computes
// tensors.out. kRelative: tensors.q is q + u, tensors.q_v is q + v, and splits.count must be 1, since several splits
// need too many registers. Grid: (order.num_blocks(), 1, plan.num_head_blocks * splits.count).
template <class T, int kSize, bool kRelative, class Thread>
MH_DEVICE void head_mixing_forward(const Thread& thread, const AttentionParams& params, const HeadMixingPlan& plan,
                                   const BlockOrder& order, const KernelTensors<T>& tensors,
                                   const HeadMixingSplits& splits, void* memory) {
  using Traits = HeadMixingForwardTiles<T, kSize, kRelative>;
  using Probability = typename Traits::Probability;
  constexpr int kStride = Traits::kStride, kWarpHeads = Traits::kWarpHeads;
  constexpr bool kSplitKv = !kRelative;
  const StridedTensor<const T>& v = tensors.v;
  const StridedTensor<T>& out = tensors.out;
  const BlockOrder::Position block_position = order.position(thread, true);
  const int64_t b = block_position.batch_row;
  const int queries = static_cast<int>(params.queries);
  const WarpPosition warp(thread, plan);
  const int first = block_position.tile * warp.rows_per_block;
  const LaneQueries lane_queries(params, params.mixing_matrix, b, first + 16 * warp.row_tile, warp.g);
  const int first_head = (kSplitKv ? thread.block_z() >> splits.log2_count : thread.block_z()) *
                         plan.warps_per_row_tile * kWarpHeads,
            warp_head = first_head + warp.row_tile_warp * kWarpHeads,
            next_first_head = first_head + plan.warps_per_row_tile * kWarpHeads;
  const HeadBlock heads{first_head, warp_head,
                        next_first_head < params.value_heads ? next_first_head : params.value_heads};
  const IndexRange visible_range =
      split_of(visible_keys(params, b, first, warp.rows_per_block), 16,
               kSplitKv ? thread.block_z() & (splits.count - 1) : 0, kSplitKv ? splits.count : 1);

  // Resident rows: q (with kRelative, q + u and q + v). In the epilogue: rows of the output.
  auto* const resident_smem = static_cast<T*>(memory);
  const HeadMixingMemory<T> block_memory(plan, resident_smem, kStride);
  SmemPipeline<T> pipeline = block_memory.pipeline;
  const FragmentExchange<Probability> exchange(
      block_memory.template fragments<Probability>(warp.row_tile * FragmentExchange<T>::num_fragments(params.heads)));
  if (warp.row_tile_warp == 0) exchange.zero_padding(thread, params.heads);
  [[maybe_unused]] float* const window_products =
      block_memory.warp_products(thread, plan.num_row_tiles * FragmentExchange<T>::num_fragments(params.heads));
  using Operands = QueryOperands<T, kSize, kRelative>;
  const Operands score_operands =
      logit_operands<T, kSize, kRelative>(params, tensors, b, {0, params.heads}, resident_smem);
  const Operands value_operands{{v, b, params.v_head_of}, {}, heads.range(), params.value_size, nullptr};
  const RowTileOperands<Operands> row_tile_score_operands{score_operands, plan, warp};
  const TileRowRange resident_range{first, queries};
  const auto tiles = tiles_of_keys<kRelative>(params, visible_range, first + warp.rows_per_block - 1);
  LoadSchedule<Operands, 2, decltype(tiles)> schedule({score_operands, value_operands}, resident_range, tiles);
  const auto load = [&](T* stage) { schedule.load(thread, params, plan, stage); };
  if (plan.num_resident_tiles > 0)
    score_operands.load_all_resident_rows(thread, params, plan, resident_smem, resident_range);
  pipeline.fill(thread, load);
  const SharedMatrix<Probability, kWarpHeads> weights(
      thread, plan, memory, params.shared_matrix(params.mixing_matrix, b), {params.heads, params.value_heads}, heads);

  Accumulator out_accum[kWarpHeads][kSize / 8];
  int tile_index = 0;
  for (StreamedTile tile = tiles(0); tile.valid(); tile = tiles(++tile_index)) {
    const int key = tile.first;
    for_each_head_group(thread, pipeline, plan.heads_per_stage, {0, params.heads}, load, [&](HeadGroup<T> group) {
      MH_ROLLED  // the products of two iterations do not fit in the registers
      for (int j = group.first + warp.row_tile_warp; j < group.end; j += plan.warps_per_row_tile) {
        Accumulator p[2];
        multiply_queries<kSize, kRelative, Traits::kPrefetch>(thread, p, row_tile_score_operands, group, j,
                                                              window_products);
        to_probabilities(thread, params, lane_queries, tile, tensors.lse + (b * params.heads + j) * params.queries, p);
        if (params.has_dropout() && params.dropout_before_mixing)
          apply_dropout(params, b, j, lane_queries.query, key + 2 * warp.t, p);
        exchange.put(thread, j, p);
      }
    });
    Accumulator mix_out[kWarpHeads][2];
    const auto mix = [&] {
      if (weights.can_mix) weights.mix(thread, mix_out, exchange);
      else mix_rows(thread, mix_out, exchange, lane_queries.matrix, {params.heads, params.value_heads}, heads);
      if (params.has_dropout() && !params.dropout_before_mixing)
        apply_dropout_to_tiles(params, {b, lane_queries.query, key + 2 * warp.t}, heads, mix_out);
    };
    for_each_head_group(thread, pipeline, plan.heads_per_stage, heads.range(), load, mix, [&](HeadGroup<T> group) {
      MH_FOR (o, kWarpHeads) {
        const int i = warp_head + o;
        if (i < group.first || i >= group.end) continue;
        multiply_add<kSize, kStride>(thread, out_accum[o], mix_out[o], value_operands.streamed_rows(plan, group, i));
      }
    });
  }
  thread.barrier();  // if there was no tile, no barrier has followed the stores of the scales yet
  float scales[kWarpHeads];
  MH_FOR (i, kWarpHeads) scales[i] = weights.scale(i);
  if (kSplitKv && splits.count > 1) {
    thread.template wait_group<0>();
    MH_FOR (i, kWarpHeads) {
      if (warp_head + i >= params.value_heads) break;
      splits.store(thread, params, {b, warp_head + i, lane_queries.query, thread.block_z() & (splits.count - 1)},
                   queries, out_accum[i], {scales[i], scales[i]});
    }
    return;
  }
  store_in_rounds(thread, plan, warp, [&](int store_index) {
    MH_FOR (i, kWarpHeads) {
      if (warp_head + i >= params.value_heads) break;
      store_rows<kSize, kStride>(
          thread, resident_smem + (store_index * warp.rows_per_block + warp.row_tile * 16) * kStride, out_accum[i],
          {scales[i], scales[i]},
          matrix_of_head(out, b, warp_head + i, queries, params.value_size, params.has_aligned_rows),
          first + 16 * warp.row_tile);
    }
  });
}

// Sums the partial outputs of head_mixing_forward() into tensors.out. One warp computes one query. Grid: (queries / 4
// rounded up, batch * value_heads) blocks of 128 threads.
template <class T, class Thread>
MH_DEVICE void combine_head_mixing_splits(const Thread& thread, const AttentionParams& params,
                                          const KernelTensors<T>& tensors, const HeadMixingSplits& splits) {
  const int64_t b = thread.block_y() / params.value_heads;
  const int head = thread.block_y() % params.value_heads, row = thread.block_x() * 4 + thread.warp();
  if (row >= params.queries) return;
  for (int c = thread.lane(); c < params.value_size; c += 32) {
    float sum = 0;
    for (int split = 0; split < splits.count; ++split) sum += splits.partial_out_of(params, {b, head, row, split})[c];
    store_element(thread, row_of(tensors.out, b, head, row) + c, sum);
  }
}

}  // namespace mh::kernels
