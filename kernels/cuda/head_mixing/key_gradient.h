// dK and dV of attention with head mixing, the third kernel of head_mixing/backward.h. Tiling: a block computes row
// tiles of 16 keys and loops over tiles of queries, so tiles of probabilities are transposed: (keys, queries). The
// gradient of r (relative positions) is computed by the same code, with row tiles of 16 rows of r instead of keys.
//
// The warps of a row tile, at most 8, compute dP̄ of the value heads and P of the query heads in turn, and exchange
// both as fragments; then each warp mixes the fragments, and adds to dK and dV of its kWarpHeads heads. Shared memory
// (head_mixing/plan.h): K and V of all heads, or the rows of r of the query heads, unless plan.num_resident_tiles is 0;
// the pipeline stages; the fragments; for 16-bit types, a mixing matrix that all queries share, and its transpose; with
// relative positions, windows and products with windows. A lane has kWarpHeads * kSize / 2 accumulators for each of
// dK and dV, 128 in total for head size 64 and 16-bit types; __launch_bounds__ allows 255 registers.
//
// For 16 heads of size 64 in bf16 on an A100, whose blocks have up to 163 KiB of shared memory, a block has one row
// tile of 8 warps, one stage with Q and dO of all heads, and 162 KiB; 512 keys take 32 blocks for each batch row.
#pragma once

#include "cuda/head_mixing/relative.h"

namespace mh::kernels {

// The resident rows of a block: keys; with relative positions, keys of one key range; or, to compute dr, distances,
// which are rows of r.
enum class ResidentRows { keys, keys_of_range, distances };

// The tile sizes and the plan of head_mixing_key_gradient().
template <class T, int kSize, bool kComputeDk, bool kComputeDv, ResidentRows kResident = ResidentRows::keys>
struct HeadMixingKeyGradientTiles {
  static constexpr int kStride = kSize + kPad,
                       kMaxWarpHeads = kResident == ResidentRows::distances || (kComputeDk && kComputeDv) ? 2 : 4;
  // Columns of the gradient that a block computes: half of the columns if the block computes dr and a row of r has at
  // least 512 bytes, so that registers suffice.
  static constexpr int kColumns = kResident == ResidentRows::distances && kSize * sizeof(T) >= 512 ? kSize / 2 : kSize,
                       kColumnBlocks = kSize / kColumns;
  static constexpr int kRegisterHeads = max_warp_heads<T>(kComputeDk && kComputeDv ? 2 * kSize : kColumns);
  static constexpr int kWarpHeads = kRegisterHeads < kMaxWarpHeads ? kRegisterHeads : kMaxWarpHeads;
  static constexpr int kResidentKeysPrefetch =
      kResident == ResidentRows::keys_of_range || sizeof(T) == 4 ? 1 : kHeadMixingPrefetch<T, kSize>;
  static constexpr int kPrefetch = kResident == ResidentRows::distances && sizeof(T) == 2 ? 2 : kResidentKeysPrefetch;
  using Probability = typename ExchangeType<T>::Probability;
  static constexpr int exchanged_fragments(const AttentionParams& params) {
    return (kComputeDk ? FragmentExchange<T>::num_fragments(params.value_heads) : 0) +
           (kComputeDv ? FragmentExchange<T>::num_fragments(params.heads) : 0);
  }
  static constexpr HeadMixingPlan plan(const AttentionParams& params, int max_shared_bytes) {
    const int max_heads = params.heads > params.value_heads ? params.heads : params.value_heads,
              total_heads = params.heads + params.value_heads;
    const int weight_rows =
        (kComputeDv ? num_weight_rows(params.heads) : 0) + (kComputeDk ? num_weight_rows(params.value_heads) : 0);
    if (kResident == ResidentRows::keys)
      return head_mixing_plan<T>({.heads = max_heads,
                                  .max_heads_per_warp = kWarpHeads,
                                  .num_resident_tiles = total_heads,
                                  .max_stage_heads = max_heads,
                                  .all_tensors_tiles = total_heads,
                                  .exchanged_fragments = exchanged_fragments(params),
                                  .weight_rows = weight_rows},
                                 kStride, max_shared_bytes);
    const bool are_distances_resident = kResident == ResidentRows::distances;
    return head_mixing_plan<T>({.heads = are_distances_resident ? params.heads : max_heads,
                                .max_heads_per_warp = kWarpHeads,
                                .num_resident_tiles = are_distances_resident ? params.heads : total_heads,
                                .max_stage_heads = max_heads,
                                .exchanged_fragments = exchanged_fragments(params),
                                .weight_rows = weight_rows,
                                .streamed_tensors = 2,
                                .has_window = true},
                               kStride, max_shared_bytes);
  }
};
// Whether dK and dV are computed by two launches, since the accumulators of both do not fit in the registers of a warp.
template <class T, int kSize>
constexpr bool kSeparateKeyValuePasses = kSize * sizeof(T) >= 512 || kSize > 128;

// ResidentRows::keys and keys_of_range: computes dk, if kComputeDk, and dv, if kComputeDv. dk has, for each query head
// j, the gradient of the keys that head j reads; dv has, for each value head i, the gradient of the values that head i
// reads. If tensors.has_one_reader_per_kv_head, the gradients are written to heads params.k_head(j) of dk and
// params.v_head(i) of dv, and otherwise to heads j and i. Padding keys get zeros. Grid: (order.num_blocks(), 1,
// plan.num_head_blocks); a tile of `order` is 16 * plan.num_row_tiles keys.
//
// ResidentRows::keys_of_range requires relative positions: tensors.q is q + u, tensors.q_v is q + v, and each key range
// begins a new tile; surplus blocks do nothing.
//
// ResidentRows::distances requires kComputeDk without kComputeDv, and computes dr (batch, heads, distances, key_size);
// zeros for rows of r that no pair of query and key uses. Grid: (order.num_blocks(), 1, plan.num_head_blocks *
// kColumnBlocks); a tile of `order` is 16 * plan.num_row_tiles rows of r.
template <class T, int kSize, bool kComputeDk, bool kComputeDv, ResidentRows kResident, class Thread>
MH_DEVICE void head_mixing_key_gradient(const Thread& thread, const AttentionParams& params, const HeadMixingPlan& plan,
                                        const BlockOrder& order, const KernelTensors<T>& tensors, void* memory) {
  using Traits = HeadMixingKeyGradientTiles<T, kSize, kComputeDk, kComputeDv, kResident>;
  const StridedTensor<const T>&q = tensors.q, &k = tensors.k, &v = tensors.v, &dout = tensors.dout;
  [[maybe_unused]] const StridedTensor<const T>& q_v = tensors.q_v;
  [[maybe_unused]] const StridedTensor<T>&dk = tensors.dk, &dv = tensors.dv;
  using Probability = typename Traits::Probability;
  constexpr bool kRelative = kResident != ResidentRows::keys, kDistancesResident = kResident == ResidentRows::distances;
  [[maybe_unused]] constexpr PairLayout kLayout =
      kDistancesResident ? PairLayout::distances_queries : PairLayout::keys_queries;
  static_assert(!kDistancesResident || (kComputeDk && !kComputeDv));
  constexpr int kStride = Traits::kStride, kWarpHeads = Traits::kWarpHeads, kColumns = Traits::kColumns;
  const BlockOrder::Position block_position = order.position(thread, false);
  const int64_t b = block_position.batch_row;
  const WarpPosition warp(thread, plan);
  // The resident rows of the block are rows `first` … rows_end - 1 of k and v, or of r.
  int first = block_position.tile * warp.rows_per_block,
      rows_end = static_cast<int>(kDistancesResident ? params.relative.num_distances : params.keys), range_index = 0;
  if constexpr (kResident == ResidentRows::keys_of_range) {
    const IndexRange tile = tile_of_key_ranges(params, first, warp.rows_per_block, range_index);
    if (range_index == params.relative.num_key_ranges) return;
    first = tile.first, rows_end = tile.end;
  }
  const int row_tile_offset = warp.row_tile * 16 * kStride;
  const int head_block = Traits::kColumnBlocks > 1 ? thread.block_z() % plan.num_head_blocks : thread.block_z();
  [[maybe_unused]] const int column =
      Traits::kColumnBlocks > 1 ? thread.block_z() / plan.num_head_blocks * kColumns : 0;
  const int first_head = head_block * plan.warps_per_row_tile * kWarpHeads,
            warp_head = first_head + warp.row_tile_warp * kWarpHeads,
            next_first_head = first_head + plan.warps_per_row_tile * kWarpHeads;
  const HeadBlock query_heads{first_head, warp_head, next_first_head < params.heads ? next_first_head : params.heads},
      value_heads{first_head, warp_head, next_first_head < params.value_heads ? next_first_head : params.value_heads};
  const int num_unpadded_keys = num_unpadded_keys_of(params, b, static_cast<int>(params.keys));

  auto* const resident_smem = static_cast<T*>(memory);  // resident rows: k, then v; or r
  T* const value_rows = resident_smem + params.heads * warp.rows_per_block * kStride;
  const HeadMixingMemory<T> block_memory(plan, resident_smem, kStride);
  SmemPipeline<T> pipeline = block_memory.pipeline;
  const int fragments = warp.row_tile * Traits::exchanged_fragments(params);
  const FragmentExchange<Probability> probability_exchange(block_memory.template fragments<Probability>(fragments));
  const FragmentExchange<T> gradient_exchange(block_memory.template fragments<T>(
      fragments + (kComputeDv ? FragmentExchange<T>::num_fragments(params.heads) : 0)));
  if (warp.row_tile_warp == 0) {
    if (kComputeDv) probability_exchange.zero_padding(thread, params.heads);
    if (kComputeDk) gradient_exchange.zero_padding(thread, params.value_heads);
  }
  [[maybe_unused]] float* const window_products =
      block_memory.warp_products(thread, plan.num_row_tiles * Traits::exchanged_fragments(params));
  using Operands = GemmOperands<T, kSize, kRelative ? 2 : 1, 1, kRelative>;
  Operands score_operands{{q, b, nullptr}, {k, b, params.k_head_of}, {0, params.heads}, params.key_size, resident_smem};
  Operands gradient_operands{
      {dout, b, nullptr}, {v, b, params.v_head_of}, {0, params.value_heads}, params.value_size, value_rows};
  if constexpr (kRelative) {
    const auto distances = distance_rows<T>(params);
    if constexpr (kDistancesResident) {
      score_operands.streamed = {q_v, b, nullptr}, score_operands.streamed_2 = {q, b, nullptr};
      score_operands.resident = {distances, b, nullptr}, score_operands.window = {k, b, params.k_head_of};
      gradient_operands.streamed = gradient_operands.resident = {}, gradient_operands.streamed_2 = {dout, b, nullptr},
      gradient_operands.window = {v, b, params.v_head_of};
    } else {
      score_operands.streamed_2 = {q_v, b, nullptr}, score_operands.window = {distances, b, nullptr};
    }
  }
  const TileRowRange resident_range{first, rows_end};
  // The order of the products of a tile: first dP̄ of all value heads and P of all query heads, which the warps
  // exchange; then dV and dK of the heads of the block.
  const auto select_heads = [](Operands x, const HeadBlock& heads, bool selects_resident) {
    x.heads = {heads.first, heads.end > heads.first ? heads.end : heads.first};
    if (!selects_resident) x.resident.data = nullptr;
    return x;
  };
  const auto tiles = [&] {
    if constexpr (kDistancesResident) {
      return QueryTilesOfDistances{params, first, warp.rows_per_block, num_unpadded_keys};
    } else {
      const IndexRange query_range = attending_queries(params, b, first, warp.rows_per_block, rows_end);
      if constexpr (kRelative) return QueryTilesOfKeyRange{params, query_range, first, range_index};
      else return RangeTiles{query_range};
    }
  }();
  const auto schedule_of = [&](const auto&... operands) {
    return LoadSchedule<Operands, sizeof...(operands), decltype(tiles)>({operands...}, resident_range, tiles);
  };
  auto schedule = [&] {
    const Operands block_gradient_operands = select_heads(gradient_operands, value_heads, false),
                   block_score_operands = select_heads(score_operands, query_heads, true);
    if constexpr (kComputeDk && kComputeDv)
      return schedule_of(gradient_operands, score_operands, block_gradient_operands, block_score_operands);
    else if constexpr (kComputeDk) return schedule_of(gradient_operands, block_score_operands);
    else return schedule_of(score_operands, block_gradient_operands);
  }();
  // If one stage holds all rows of a tile, it is acquired once per tile, and released after all products of the tile.
  const bool stage_has_all_tensors = !kRelative && plan.stage_has_all_tensors;
  const auto load = [&](T* stage) {
    if (!stage_has_all_tensors) return schedule.load(thread, params, plan, stage);
    if (const StreamedTile tile = tiles(schedule.tile_index); tile.valid()) {
      score_operands.load_streamed_rows(thread, params, plan, stage, {0, params.heads}, tile);
      gradient_operands.load_streamed_rows(thread, params, plan, stage + params.heads * 16 * kStride,
                                           {0, params.value_heads}, tile);
      ++schedule.tile_index;
    }
    thread.commit_group();
  };
  if (plan.num_resident_tiles > 0) {
    score_operands.load_all_resident_rows(thread, params, plan, resident_smem, resident_range);
    gradient_operands.load_all_resident_rows(thread, params, plan, value_rows, resident_range);
  }
  pipeline.fill(thread, load);
  const SharedMatrix<Probability, kWarpHeads> probability_mixing_matrix(
      thread, plan, memory, kComputeDv ? params.shared_matrix(params.mixing_matrix, b) : nullptr,
      {params.heads, params.value_heads}, value_heads);
  const SharedMatrix<T, kWarpHeads> gradient_mixing_matrix(
      thread, plan, memory, kComputeDk ? params.shared_matrix(params.mixing_matrix_transposed, b) : nullptr,
      {params.value_heads, params.heads}, query_heads, kComputeDv ? num_weight_rows(params.heads) : 0);
  // Whether dS is computed from the probabilities that the warps share for dV (FragmentExchange). Otherwise the kernel
  // recomputes them: with Sigsoftmax, whose derivative needs the logits; with dropout before mixing, which the shared
  // probabilities include; and in a launch without dV, in which warps share no probabilities.
  const bool reuses_probabilities = kComputeDk && kComputeDv && params.normaliser == Normaliser::softmax &&
                                    !(params.has_dropout() && params.dropout_before_mixing);

  Accumulator dk_accum[kComputeDk ? kWarpHeads : 1][kComputeDk ? kColumns / 8 : 2],
      dv_accum[kComputeDv ? kWarpHeads : 1][kComputeDv ? kSize / 8 : 2];
  int tile_index = 0;
  for (StreamedTile tile = tiles(0); tile.valid(); tile = tiles(++tile_index)) {
    const int query = tile.first + 2 * warp.t;  // query of element (c, e) of a lane: query + 8 * c + e
    const QueryStats* const tile_stats = tensors.query_stats + b * params.heads * params.queries + query;
    const auto matrix_of = [&](const float* matrices) {
      return [=](int c, int e) {
        const int query_index = query + 8 * c + e, clamped_query = query_index < tile.end ? query_index : tile.end - 1;
        return matrices + b * params.matrix_batch_stride + clamped_query * params.matrix_query_stride;
      };
    };
    // Returns the first key of the row tile; if the resident rows are distances, the offset from a query to its key at
    // the first distance of the row tile.
    const auto first_key = [&] {
      return 16 * warp.row_tile + (kDistancesResident ? tile.window_row - tile.first : first);
    };
    const auto apply_dropout = [&](int head, Accumulator(&x)[2]) {
      apply_dropout_keep_bits(
          dropout_keep_bits_transposed<2, kDistancesResident>(params, b, head, query, first_key() + warp.g),
          params.dropout.scale, x);
    };
    // Computes `p`, which is P_jᵀ of query head j, and, if `slopes` has accumulators, `slopes`: P_jᵀ times the
    // derivative of the logit with respect to the product of query and key.
    const auto probabilities_of = [&](int j, HeadGroup<T> group, Accumulator(&p)[2], auto& slopes) {
      constexpr bool kComputeSlopes = std::is_same_v<decltype(slopes), Accumulator(&)[2]>;
      multiply_transposed<kSize, kStride, Traits::kPrefetch>(
          thread, p, score_operands.resident_rows(plan, group, j) + row_tile_offset,
          score_operands.streamed_rows(plan, group, j));
      if constexpr (kRelative)
        add_shifted<kSize, kLayout, Traits::kPrefetch>(thread, p, window_products,
                                                       score_operands.streamed_rows(plan, group, j, 1),
                                                       score_operands.window_of(plan, group, j) + row_tile_offset);
      if constexpr (kDistancesResident)
        apply_distance_mask(thread, params, {tile.first_unmasked_row, tile.window_end}, tile.end, tile.first,
                            first_key(), p);
      else apply_mask<true>(thread, params, num_unpadded_keys, tile.first, first_key(), p);
      dispatch_normaliser(params, [&](const auto& normaliser) {
        MH_FOR (c, 2)
          MH_FOR (e, 2) {
            float stats[4];
            thread.read(stats, &tile_stats[j * params.queries + 8 * c + e].lse2);
            MH_FOR (r, 2) {
              float& x = p[c].x[2 * r + e];
              const float product = x;
              x = thread.exp2(normaliser.log2_numerator(thread, product) - stats[0]) * stats[1];
              if constexpr (kComputeSlopes) slopes[c].x[2 * r + e] = normaliser.multiply_slope(thread, x, x, product);
            }
          }
      });
    };
    const auto gradients_of = [&](int i, HeadGroup<T> group, Accumulator(&x)[2]) {
      if constexpr (kDistancesResident)
        add_shifted<kSize, kLayout, Traits::kPrefetch>(thread, x, window_products,
                                                       gradient_operands.streamed_rows(plan, group, i, 1),
                                                       gradient_operands.window_of(plan, group, i) + row_tile_offset);
      else
        multiply_transposed<kSize, kStride, Traits::kPrefetch>(
            thread, x, gradient_operands.resident_rows(plan, group, i) + row_tile_offset,
            gradient_operands.streamed_rows(plan, group, i));
    };
    if (stage_has_all_tensors) pipeline.acquire(thread, load);
    const auto for_each_group = [&](HeadRange heads, int offset, const auto& on_first_group, const auto& work) {
      if (!stage_has_all_tensors)
        return for_each_head_group(thread, pipeline, plan.heads_per_stage, heads, load, on_first_group, work);
      on_first_group();
      work(HeadGroup<T>{0, heads.end, pipeline.current() + offset});
    };
    const auto no_op = [] {};
    const int gradient_offset = params.heads * 16 * kStride;
    if constexpr (kComputeDk)
      for_each_group({0, params.value_heads}, gradient_offset, no_op, [&](HeadGroup<T> group) {
        MH_ROLLED  // the products of two iterations do not fit in the registers
        for (int i = group.first + warp.row_tile_warp; i < group.end; i += plan.warps_per_row_tile) {
          Accumulator x[2];
          gradients_of(i, group, x);
          if (params.has_dropout() && !params.dropout_before_mixing) apply_dropout(i, x);
          gradient_exchange.put(thread, i, x);
        }
      });
    if constexpr (kComputeDv)
      for_each_group({0, params.heads}, 0, no_op, [&](HeadGroup<T> group) {
        MH_ROLLED
        for (int j = group.first + warp.row_tile_warp; j < group.end; j += plan.warps_per_row_tile) {
          Accumulator p[2];
          probabilities_of(j, group, p, no_op);
          if (params.has_dropout() && params.dropout_before_mixing) apply_dropout(j, p);
          probability_exchange.put(thread, j, p);
        }
      });
    if (stage_has_all_tensors) thread.barrier();  // otherwise the next for_each_group() begins with a barrier
    if constexpr (kComputeDv) {
      Accumulator mix_out[kWarpHeads][2];
      const auto mix = [&] {
        if (probability_mixing_matrix.can_mix) probability_mixing_matrix.mix(thread, mix_out, probability_exchange);
        else
          mix_columns(thread, mix_out, probability_exchange, matrix_of(params.mixing_matrix),
                      {params.heads, params.value_heads}, value_heads);
        if (params.has_dropout() && !params.dropout_before_mixing) {
          MH_FOR (o, kWarpHeads)
            if (warp_head + o < value_heads.end) apply_dropout(warp_head + o, mix_out[o]);
        }
      };
      for_each_group(value_heads.range(), gradient_offset, mix, [&](HeadGroup<T> group) {
        MH_FOR (o, kWarpHeads) {
          if (warp_head + o < group.first || warp_head + o >= group.end) continue;
          multiply_add<kSize, kStride>(thread, dv_accum[o], mix_out[o],
                                       gradient_operands.streamed_rows(plan, group, warp_head + o));
        }
      });
    }
    if constexpr (kComputeDk) {
      Accumulator dp[kWarpHeads][2];
      const auto mix = [&] {
        if (gradient_mixing_matrix.can_mix) gradient_mixing_matrix.mix(thread, dp, gradient_exchange);
        else
          mix_columns(thread, dp, gradient_exchange, matrix_of(params.mixing_matrix_transposed),
                      {params.value_heads, params.heads}, query_heads);
        if (params.has_dropout() && params.dropout_before_mixing) {
          MH_FOR (o, kWarpHeads)
            if (warp_head + o < query_heads.end) apply_dropout(warp_head + o, dp[o]);
        }
      };
      for_each_group(query_heads.range(), 0, mix, [&](HeadGroup<T> group) {
        MH_FOR (o, kWarpHeads) {
          const int j = warp_head + o;
          if (j < group.first || j >= group.end) continue;
          Accumulator slopes[2];
          if (reuses_probabilities) {
            probability_exchange.get(thread, j, slopes);
            MH_FOR (c, 2)
              MH_FOR (e, 4) slopes[c].x[e] *= params.scale;
          } else {
            Accumulator p[2];
            probabilities_of(j, group, p, slopes);
          }
          MH_FOR (c, 2)
            MH_FOR (e, 2) {
              const float delta = tile_stats[j * params.queries + 8 * c + e].delta;
              MH_FOR (r, 2) slopes[c].x[2 * r + e] *= dp[o][c].x[2 * r + e] * gradient_mixing_matrix.scale(o) - delta;
            }
          multiply_add<kColumns, kStride>(thread, dk_accum[o], slopes,
                                          score_operands.streamed_rows(plan, group, j) + column);
        }
      });
    }
    if (stage_has_all_tensors) pipeline.release();
  }
  if constexpr (kDistancesResident) {
    float* const to = tensors.dr + (b * params.heads + warp_head) * rows_end * int64_t{params.key_size};
    MH_FOR (o, kWarpHeads)
      MH_FOR (n, kColumns / 8)
        MH_FOR (x, 4) {
          const int row = first + 16 * warp.row_tile + warp.g + x / 2 * 8, c = column + n * 8 + 2 * warp.t + x % 2;
          if (warp_head + o < query_heads.end && row < rows_end && c < params.key_size)
            to[(int64_t{o} * rows_end + row) * params.key_size + c] = dk_accum[o][n].x[x];
        }
    thread.template wait_group<0>();
  } else {
    // The scales of dV. If there was no tile, no barrier has followed the stores of the scales to shared memory yet.
    float scales[kWarpHeads];
    if constexpr (kComputeDv) {
      thread.barrier();
      MH_FOR (o, kWarpHeads) scales[o] = probability_mixing_matrix.scale(o);
    }
    store_in_rounds(thread, plan, warp, [&](int store_index) {
      T* const staging = resident_smem + (store_index * warp.rows_per_block + warp.row_tile * 16) * kStride;
      MH_FOR (o, kWarpHeads) {
        if constexpr (kComputeDk) {
          if (warp_head + o < params.heads)
            store_rows<kSize, kStride>(
                thread, staging, dk_accum[o], {1, 1},
                matrix_of_head(dk, b, tensors.has_one_reader_per_kv_head ? params.k_head(warp_head + o) : warp_head + o,
                               rows_end, params.key_size, params.has_aligned_rows),
                first + 16 * warp.row_tile);
        }
        if constexpr (kComputeDv) {
          if (warp_head + o < params.value_heads)
            store_rows<kSize, kStride>(
                thread, staging, dv_accum[o], {scales[o], scales[o]},
                matrix_of_head(dv, b, tensors.has_one_reader_per_kv_head ? params.v_head(warp_head + o) : warp_head + o,
                               rows_end, params.value_size, params.has_aligned_rows),
                first + 16 * warp.row_tile);
        }
      }
    });
  }
}

}  // namespace mh::kernels
