// Backward pass of attention without head mixing. Probabilities P are recomputed from the log-sum-exp. With delta_i =
// Σ_s P_is dP_is, the gradient of the logit of query i and key s is P_is (dP_is - delta_i).
//
// Tiling: first attention_delta() computes delta. A warp computes one query of a head: it reads a row of O and of dO,
// 256 bytes in total for head size 64 in bf16, and a lane holds one partial sum in registers, without shared memory.
// Then a block of one kernel computes dQ of 64 queries and loops over tiles of keys; a block of another kernel computes
// dK and dV of 64 keys and loops over tiles of queries. Blocks have fewer rows, 32 or 16, if kSize elements take more
// than 512 bytes, or more than 256 bytes with relative positions. The resident rows of the block and the streamed
// tiles, in one or two pipeline stages, are in shared memory; the accumulators of the gradients are in registers. No
// kernel accumulates in global memory, so results are bit-identical in every run.
//
// Without relative positions a block takes (2 * resident + 2 * kStages * streamed) * (kSize + 8) elements of shared
// memory, with `resident` resident rows and tiles of `streamed` rows. A lane has kSize / 2 accumulators for each
// gradient, and streamed / 2 for each of P and dP. For head size 64 in bf16 and 2 stages, the dQ kernel streams tiles
// of 32 keys and takes 36 KiB and 32 + 2 * 16 accumulators; the dK and dV kernel streams tiles of 64 queries and takes
// 54 KiB and 2 * 32 + 2 * 32 accumulators. For 512 positions of 16 heads, each kernel has 128 blocks per batch row.
//
// Kernels with kLogitTerms recompute the logit and its derivative with respect to the product from the product in
// registers, so they have no further accumulators. Sinks are in the log-sum-exp and change neither kernel.
#pragma once

#include "cuda/attention_forward.h"

namespace mh::kernels {

// Computes tensors.delta (batch, heads, queries) = rowsum(dout ∘ out), which equals rowsum(P ∘ dP), since `out` and dP
// include dropout and the scale of the head. One warp computes one query. Grid: (queries / 4 rounded up, batch * heads)
// blocks of 128 threads.
template <class T, class Thread>
MH_DEVICE void attention_delta(const Thread& thread, const AttentionParams& params, const KernelTensors<T>& tensors) {
  const int64_t b = thread.block_y() / params.value_heads, head = thread.block_y() % params.value_heads;
  const int row = thread.block_x() * 4 + thread.warp();
  if (row >= params.queries) return;
  const T *out = row_of(tensors.out, b, head, row), *dout = row_of(tensors.dout, b, head, row);
  float sum = 0;
  for (int c = thread.lane(); c < params.value_size; c += 32)
    sum += to_float(thread, out[c]) * to_float(thread, dout[c]);
  MH_UNROLL
  for (int lane_mask = 1; lane_mask < 32; lane_mask *= 2) sum += thread.shuffle_xor(sum, lane_mask);
  if (thread.lane() == 0) tensors.delta[thread.block_y() * params.queries + row] = sum;
}

// Number of warps of a block of the backward pass, limited by shared memory, which holds two tensors of resident rows
// and two of streamed rows.
template <class T, int kSize>
constexpr int kBackwardWarps = kSize * sizeof(T) <= 512 ? 4 : 2;

// The tile sizes and the shared memory of attention_query_gradient().
template <class T, int kSize, bool kRelative = false>
struct QueryGradientTiles {
  static constexpr int kWarps = kRelative ? kRelativeWarps<T, kSize> : kBackwardWarps<T, kSize>;
  static constexpr int kThreads = 32 * kWarps, kQueries = 16 * kWarps, kStride = kSize + kPad;
  static constexpr int kNonRelativeKeys =
      AttentionTiles<T, kSize>::kKeys < 32 ? 16 : AttentionTiles<T, kSize>::kKeys / 2;
  static constexpr int kKeys = kRelative ? kRelativeTileRows<T, kSize> : kNonRelativeKeys;
  static constexpr int kStages = kRelative ? kRelativeStages<T, kSize> : 2;
  // Columns of dQ that a block computes. With relative positions a warp has two accumulators for each column, which
  // must fit in its registers.
  static constexpr int kColumns = kRelative && kSize > 128 ? kSize / 2 : kSize;
  struct alignas(16) Shared
      : std::conditional_t<kRelative, QueryRelativeSmem<T, kSize, kWarps, kKeys>, NoRelativeSmem> {
    T q[kQueries * kStride], dout[kQueries * kStride];
    T k[kStages][kKeys * kStride], v[kStages][kKeys * kStride];
  };
};

// Sums each column of the accumulators of all warps of the block, and writes the first min(kColumns, columns) sums to
// `to`. accum (16, kColumns): a warp's accumulators; warp_sums (warps, kColumns): scratch in shared memory.
template <int kColumns, class Thread>
MH_DEVICE void store_column_sums(const Thread& thread, const Accumulator (&accum)[kColumns / 8], float* warp_sums,
                                 float* to, int columns) {
  MH_FOR (n, kColumns / 8)
    MH_FOR (e, 2) {
      float x = accum[n].x[e] + accum[n].x[2 + e];
      MH_UNROLL
      for (int lane_mask = 4; lane_mask < 32; lane_mask *= 2) x += thread.shuffle_xor(x, lane_mask);
      if (thread.lane() < 4) warp_sums[thread.warp() * kColumns + n * 8 + 2 * thread.lane() + e] = x;
    }
  thread.barrier();
  for (int c = thread.index(); c < columns && c < kColumns; c += thread.threads()) {
    float sum = 0;
    for (int w = 0; w < thread.threads() / 32; ++w) sum += warp_sums[w * kColumns + c];
    to[c] = sum;
  }
  thread.barrier();
}

// Computes dq and, for each tile of queries, partial gradients: dscale (batch, heads, tiles) of the head scales, if
// dscale is not null; du and dv_bias (batch, heads, tiles, key_size) of u and v, if kRelative. Grid: (tiles of queries,
// batch * heads, kSize / kColumns).
template <class T, int kSize, bool kRelative, bool kLogitTerms, class Thread>
MH_DEVICE void attention_query_gradient(const Thread& thread, const AttentionParams& params,
                                        const KernelTensors<T>& tensors,
                                        typename QueryGradientTiles<T, kSize, kRelative>::Shared& shared) {
  using Traits = QueryGradientTiles<T, kSize, kRelative>;
  const StridedTensor<const T>&q = tensors.q, &dout = tensors.dout;
  const StridedTensor<T>& dq = tensors.dq;
  const int64_t b = thread.block_y() / params.value_heads, head = thread.block_y() % params.value_heads;
  const int queries = static_cast<int>(params.queries), g = thread.lane() / 4, t = thread.lane() % 4;
  const int tile = thread.blocks_x() - 1 - thread.block_x(), first = tile * Traits::kQueries,
            row = first + thread.warp() * 16 + g;
  const IndexRange visible_range = visible_keys<kLogitTerms>(params, b, first, Traits::kQueries);
  load_tile<Traits::kQueries, kSize, Traits::kStride>(
      thread, shared.q, matrix_of_head(q, b, head, queries, params.key_size, params.has_aligned_rows), first);
  load_tile<Traits::kQueries, kSize, Traits::kStride>(
      thread, shared.dout, matrix_of_head(dout, b, head, queries, params.value_size, params.has_aligned_rows), first);
  if constexpr (kRelative) {
    thread.commit_group();
    thread.template wait_group<0>();
    add_biases<Traits::kQueries, kSize>(thread, params, head, shared.q, shared.q_v);
  }
  if constexpr (kLogitTerms) thread.commit_group();  // as in attention_forward()

  const float head_scale = params.head_scales != nullptr ? params.head_scales[b * params.head_scales_stride + head] : 1;
  float lse2[2], delta[2], dscale = 0;
  MH_FOR (r, 2) {
    const int64_t index = thread.block_y() * params.queries + row + 8 * r;
    lse2[r] = row + 8 * r < queries ? tensors.lse[index] * kLog2E : INFINITY;
    delta[r] = row + 8 * r < queries ? tensors.delta[index] : 0;
  }
  const int column = Traits::kColumns < kSize ? thread.block_z() * Traits::kColumns : 0;
  Accumulator dq_accum[Traits::kColumns / 8], dq_v_accum[kRelative ? Traits::kColumns / 8 : 1];
  const int warp_offset = thread.warp() * 16 * Traits::kStride;
  [[maybe_unused]] const LogitTerms logit_terms(params, head);
  for_each_key_tile<Traits, T, kSize, kRelative, kLogitTerms, true>(
      thread, params, tensors, {b, head, first, visible_range}, shared,
      [&](int s, int end, int stage, [[maybe_unused]] int ring_row, [[maybe_unused]] int distance_column) {
        thread.barrier();
        Accumulator p[Traits::kKeys / 8], dp[Traits::kKeys / 8];
        multiply_transposed<kSize, Traits::kStride>(thread, p, shared.q + warp_offset, shared.k[stage]);
        if constexpr (kRelative) shared.add_position_term(thread, p, ring_row);
        apply_mask<false, kLogitTerms>(thread, params, end, first + thread.warp() * 16, s, p);
        multiply_transposed<kSize, Traits::kStride>(thread, dp, shared.dout + warp_offset, shared.v[stage]);
        if (params.has_dropout()) apply_dropout(params, b, head, row, s + 2 * t, dp);
        dispatch_normaliser<kLogitTerms>(params, [&](const auto& normaliser) {
          MH_FOR (n, Traits::kKeys / 8)
            MH_FOR (i, 4) {
              float& x = p[n].x[i];
              float product = x;  // with logit terms, the logit
              [[maybe_unused]] float logit_slope;
              if constexpr (kLogitTerms)
                product = logit_terms.logit(thread, product,
                                            distance_column + n * 8 + 2 * t + i % 2 - (row + i / 2 * 8), logit_slope);
              const float grad = dp[n].x[i];
              x = thread.exp2(normaliser.log2_numerator(thread, product) - lse2[i / 2]);
              dscale += x * grad;
              x = normaliser.multiply_slope(thread, x * (grad * head_scale - delta[i / 2]), x, product);
              if constexpr (kLogitTerms) x *= logit_slope;
            }
        });
        multiply_add<Traits::kColumns, Traits::kStride>(thread, dq_accum, p, shared.k[stage] + column);
        if constexpr (kRelative) shared.multiply_add(thread, dq_v_accum, p, ring_row, column);
      });
  thread.template wait_group<0>();
  thread.barrier();
  if constexpr (kRelative) {
    const int64_t offset = (thread.block_y() * int64_t{thread.blocks_x()} + tile) * params.key_size + column;
    store_column_sums<Traits::kColumns>(thread, dq_accum, shared.products, tensors.du + offset,
                                        params.key_size - column);
    store_column_sums<Traits::kColumns>(thread, dq_v_accum, shared.products, tensors.dv_bias + offset,
                                        params.key_size - column);
    MH_FOR (n, Traits::kColumns / 8)
      MH_FOR (i, 4) dq_accum[n].x[i] += dq_v_accum[n].x[i];
  }
  const float factor[2] = {1, 1};
  store_rows<Traits::kColumns, Traits::kStride>(
      thread, shared.q + warp_offset, dq_accum, factor,
      {row_of(dq, b, head, 0) + column, dq.row_stride, queries, params.key_size - column, params.has_aligned_rows},
      first + thread.warp() * 16);
  if (tensors.dscale == nullptr || column > 0) return;
  MH_UNROLL
  for (int lane_mask = 1; lane_mask < 32; lane_mask *= 2) dscale += thread.shuffle_xor(dscale, lane_mask);
  auto* warp_sums = reinterpret_cast<float*>(shared.k[0]);
  if (thread.lane() == 0) warp_sums[thread.warp()] = dscale;
  thread.barrier();
  if (thread.index() != 0) return;
  for (int w = 1; w < Traits::kWarps; ++w) dscale += warp_sums[w];
  tensors.dscale[thread.block_y() * thread.blocks_x() + tile] = dscale;
}

// The tile sizes and the shared memory of attention_key_gradient().
template <class T, int kSize, bool kRelative = false>
struct KeyGradientTiles {
  static constexpr int kWarps = kRelative ? kRelativeWarps<T, kSize> : kBackwardWarps<T, kSize>;
  static constexpr int kThreads = 32 * kWarps, kKeys = 16 * kWarps;
  static constexpr int kStride = kSize + kPad, kRowBytes = kSize * static_cast<int>(sizeof(T));
  static constexpr int kNonRelativeQueries = kRowBytes <= 128 ? 64 : kRowBytes <= 512 ? 32 : 16;
  static constexpr int kQueries = kRelative ? kRelativeTileRows<T, kSize> : kNonRelativeQueries;
  static constexpr int kStages = kRelative ? kRelativeStages<T, kSize> : 2;
  // Whether dK and dV are computed by two launches, since the accumulators of both do not fit in the registers of a
  // warp.
  static constexpr bool kSeparatePasses = kSize > 128;
  struct alignas(16) Shared
      : std::conditional_t<kRelative, KeyRelativeSmem<T, kSize, kWarps, kQueries>, NoRelativeSmem> {
    T k[kKeys * kStride], v[kKeys * kStride];
    T q[kStages][kQueries * kStride], dout[kStages][kQueries * kStride];
  };
};

// Computes dk, if kComputeDk, and dv, if kComputeDv: for each head, the gradients of the keys and values that the head
// reads. If tensors.has_one_reader_per_kv_head, they are written to head params.k_head(head) of dk and head
// params.v_head(head) of dv, and otherwise to head `head` of dk and dv. Padding keys get zeros. Grid: (tiles
// of keys, batch * heads). kRelative: each key range begins a new tile, so the grid may have more blocks than there are
// tiles; blocks without a tile return at once.
template <class T, int kSize, bool kComputeDk, bool kComputeDv, bool kRelative, bool kLogitTerms, class Thread>
MH_DEVICE void attention_key_gradient(const Thread& thread, const AttentionParams& params,
                                      const KernelTensors<T>& tensors,
                                      typename KeyGradientTiles<T, kSize, kRelative>::Shared& shared) {
  using Traits = KeyGradientTiles<T, kSize, kRelative>;
  const StridedTensor<const T>&q = tensors.q, &k = tensors.k, &v = tensors.v, &dout = tensors.dout;
  const StridedTensor<T>&dk = tensors.dk, &dv = tensors.dv;
  const int64_t b = thread.block_y() / params.value_heads, head = thread.block_y() % params.value_heads;
  const int64_t k_head = params.k_head(head), v_head = params.v_head(head);
  const int g = thread.lane() / 4, t = thread.lane() % 4;
  // The keys of the block are among the keys `first` … `key_end` - 1.
  int first = thread.block_x() * Traits::kKeys, key_end = static_cast<int>(params.keys), range_index = 0;
  if constexpr (kRelative) {
    const IndexRange tile = tile_of_key_ranges(params, first, Traits::kKeys, range_index);
    if (range_index == params.relative.num_key_ranges) return;
    first = tile.first, key_end = tile.end;
  }
  const int row = first + thread.warp() * 16 + g;
  const IndexRange query_range = attending_queries<kLogitTerms>(params, b, first, Traits::kKeys, key_end);
  const int num_unpadded_keys = num_unpadded_keys_of(params, b, key_end);
  const T *q_data = row_of(q, b, head, 0), *dout_data = row_of(dout, b, head, 0);
  const auto load_queries = [&](int i, int stage, [[maybe_unused]] int ring_row, [[maybe_unused]] bool is_first) {
    load_tile<Traits::kQueries, kSize, Traits::kStride>(
        thread, shared.q[stage], {q_data, q.row_stride, query_range.end, params.key_size, params.has_aligned_rows}, i);
    load_tile<Traits::kQueries, kSize, Traits::kStride>(
        thread, shared.dout[stage],
        {dout_data, dout.row_stride, query_range.end, params.value_size, params.has_aligned_rows}, i);
    if constexpr (kRelative) {
      if (is_first) shared.load_first_window(thread, params, head, params.relative.key_ranges[range_index], first, i);
      else shared.advance_window(thread, params, head, params.relative.key_ranges[range_index], first, i, ring_row);
    }
  };
  // Padding keys are not read; their contents are arbitrary.
  const int key_limit = num_unpadded_keys < key_end ? num_unpadded_keys : key_end;
  load_tile<Traits::kKeys, kSize, Traits::kStride>(
      thread, shared.k, matrix_of_head(k, b, k_head, key_limit, params.key_size, params.has_aligned_rows), first);
  load_tile<Traits::kKeys, kSize, Traits::kStride>(
      thread, shared.v, matrix_of_head(v, b, v_head, key_limit, params.value_size, params.has_aligned_rows), first);

  const float head_scale = params.head_scales != nullptr ? params.head_scales[b * params.head_scales_stride + head] : 1;
  Accumulator dk_accum[kComputeDk ? kSize / 8 : 2], dv_accum[kComputeDv ? kSize / 8 : 2];
  const int warp_offset = thread.warp() * 16 * Traits::kStride;
  const int64_t stats_offset = thread.block_y() * params.queries;  // index of lse and delta of query 0
  [[maybe_unused]] const LogitTerms logit_terms(params, head);
  // Columns of the position bias for query 0 and a lane's two keys.
  [[maybe_unused]] int distance_columns[2] = {0, 0};
  if constexpr (kLogitTerms) {
    MH_FOR (r, 2) distance_columns[r] = distance_column_of_key(params, row + 8 * r);
  }
  const auto visit = [&](int i, int stage, [[maybe_unused]] int ring_row) {
    if constexpr (kRelative) add_biases<Traits::kQueries, kSize>(thread, params, head, shared.q[stage], shared.q_v);
    thread.barrier();
    Accumulator p[Traits::kQueries / 8], ds[kComputeDk ? Traits::kQueries / 8 : 2];  // transposed (keys, queries)
    multiply_transposed<kSize, Traits::kStride>(thread, p, shared.k + warp_offset, shared.q[stage]);
    if constexpr (kRelative) shared.add_position_term(thread, p, ring_row);
    apply_mask<true, kLogitTerms>(thread, params, num_unpadded_keys, i, first + thread.warp() * 16, p);
    if constexpr (kComputeDk)
      multiply_transposed<kSize, Traits::kStride>(thread, ds, shared.v + warp_offset, shared.dout[stage]);
    // scaled_dropout_of(4 * n + x) returns the head's scale times the dropout factor of the probability in p[n].x[x].
    const auto to_gradients = [&](const auto& normaliser, const auto& scaled_dropout_of) {
      MH_FOR (n, Traits::kQueries / 8)
        MH_FOR (e, 2) {
          const int query = i + n * 8 + 2 * t + e;
          const bool in_range = query < query_range.end;
          const float lse2 = in_range ? tensors.lse[stats_offset + query] * kLog2E : 0;
          [[maybe_unused]] const float delta = kComputeDk && in_range ? tensors.delta[stats_offset + query] : 0;
          MH_FOR (r, 2) {
            float& x = p[n].x[2 * r + e];
            float product = x;  // with logit terms, the logit
            [[maybe_unused]] float logit_slope;
            if constexpr (kLogitTerms)
              product = logit_terms.logit(thread, product, distance_columns[r] - query, logit_slope);
            const float scaled_dropout = scaled_dropout_of(4 * n + 2 * r + e);
            x = thread.exp2(normaliser.log2_numerator(thread, product) - lse2);
            if constexpr (kComputeDk) {
              float& y = ds[n].x[2 * r + e];
              y = normaliser.multiply_slope(thread, x * (y * scaled_dropout - delta), x, product);
              if constexpr (kLogitTerms) y *= logit_slope;
            }
            x *= scaled_dropout;
          }
        }
    };
    dispatch_normaliser<kLogitTerms>(params, [&](const auto& normaliser) {
      if (!params.has_dropout()) return to_gradients(normaliser, [&](int) { return head_scale; });
      const uint32_t dropout_keep_bits =
          dropout_keep_bits_transposed<Traits::kQueries / 8>(params, b, head, i + 2 * t, row);
      to_gradients(normaliser,
                   [&](int x) { return dropout_factor(dropout_keep_bits, x, head_scale * params.dropout.scale); });
    });
    if constexpr (kComputeDv) multiply_add<kSize, Traits::kStride>(thread, dv_accum, p, shared.dout[stage]);
    if constexpr (kComputeDk) multiply_add<kSize, Traits::kStride>(thread, dk_accum, ds, shared.q[stage]);
  };
  for_each_tile<Traits::kStages, Traits::kQueries>(
      thread, query_range.first, query_range.end, load_queries,
      [&](int ring_row) { return shared.next_ring_row(ring_row); }, visit);
  thread.template wait_group<0>();
  thread.barrier();
  const float factor[2] = {1, 1};
  const int warp_first = first + thread.warp() * 16;
  if constexpr (kComputeDk)
    store_rows<kSize, Traits::kStride>(thread, shared.k + warp_offset, dk_accum, factor,
                                       matrix_of_head(dk, b, tensors.has_one_reader_per_kv_head ? k_head : head,
                                                      key_end, params.key_size, params.has_aligned_rows),
                                       warp_first);
  if constexpr (kComputeDv)
    store_rows<kSize, Traits::kStride>(thread, shared.v + warp_offset, dv_accum, factor,
                                       matrix_of_head(dv, b, tensors.has_one_reader_per_kv_head ? v_head : head,
                                                      key_end, params.value_size, params.has_aligned_rows),
                                       warp_first);
}

}  // namespace mh::kernels
