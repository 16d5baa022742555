// Backward pass of attention with head mixing, in three kernels, each of which recomputes the probabilities. With
// dP̄_i = dO_i V_iᵀ: the first sums G[j, i] = Σ_s P_j dP̄_i for each query, the gradient of its matrix; then
// dP_j = Σ_i m[j, i] dP̄_i, and with D_j = Σ_i m[j, i] G[j, i] the gradient of the logits is dS_j = P_j (dP_j - D_j).
// The second computes dQ and loops over the keys; the third computes dK and dV and loops over the queries. No kernel
// accumulates in global memory.
//
// The log-sum-exp is rounded, by 2^-24 of the largest logit, so probabilities are divided by their sum, which the first
// kernel computes; otherwise the gradients of large logits would not sum to zero.
#pragma once

#include "cuda/mixed_relative.h"

namespace mh::kernels {

// Computes a warp's dP̄ of heads begin … end - 1 of the result, which are in a stage, and a tile of keys from `key` on,
// into exchange, whose first head is `first`.
template <int kSize, int kAhead, class Thread, class T, class Meets>
MH_DEVICE void exchange_gradients(const Thread& thread, const AttentionParams& a, const MixedPlan& plan,
                                  const MixedPlace& at, int64_t b, const MixedQueries& q, int key, const Meets& given,
                                  int begin, int end, const T* place, const Exchange<T>& exchange, int first) {
  MH_ROLLED  // as in mixed_forward
  for (int i = begin + at.group; i < end; i += plan.groups) {
    Sum x[2];
    multiply_turned<kSize, Meets::kStride, kAhead>(thread, x,
                                                   given.stays(plan, place, begin, i) + at.strip * 16 * Meets::kStride,
                                                   given.comes(plan, place, begin, i));
    if (a.has_dropout() && !a.dropout_before_mixing) drop(a, b, i, q.row, key + 2 * at.t, x);
    exchange.put(thread, i - first, x);
  }
}

template <class T, int kSize, bool kRelative = false>
struct MixedSumsTiles {
  static constexpr int kStride = kSize + kPad, kOwn = sizeof(T) == 4 ? 2 : 4;
  static constexpr int kAhead = kRelative ? 2 : kMixedAhead<T, kSize>;
  static constexpr int kChunk = sizeof(T) == 4 ? 4 : 8;  // heads of the result with accumulators in registers
  static constexpr int of_result(const AttentionParams& a) { return a.out_heads < kChunk ? a.out_heads : kChunk; }
  static constexpr int chunks(const AttentionParams& a) { return (a.out_heads + kChunk - 1) / kChunk; }
  static constexpr MixedPlan plan(const AttentionParams& a, int limit) {
    const int of_chunk = of_result(a), most = a.in_heads > of_chunk ? a.in_heads : of_chunk, of_row = kRelative ? 2 : 1;
    return mixed_plan<T>({.divided = a.in_heads,
                          .own = kOwn,
                          .staying = of_row * a.in_heads + of_chunk,
                          .meeting = most,
                          .exchanged = Exchange<T>::of(of_chunk),
                          .stays = of_row,
                          .window = kRelative},
                         kStride, limit);
  }
};

// Writes x.g, G before division by the sums, and x.sums, the sums of the probabilities recomputed from x.lse. x.q and
// x.shifted: as in mixed_forward. Blocks: (order.blocks(), 1, plan.blocks * chunks).
template <class T, int kSize, bool kRelative, class Thread>
MH_DEVICE void mixed_sums(const Thread& thread, const AttentionParams& a, const MixedPlan& plan,
                          const BlockOrder& order, const KernelTensors<T>& x, void* memory) {
  using Z = MixedSumsTiles<T, kSize, kRelative>;
  const Rows<const T>&v = x.v, &dout = x.dout;
  constexpr int kStride = Z::kStride, kOwn = Z::kOwn, kChunk = Z::kChunk;
  const BlockOrder::Place at_block = order.place(thread, true);
  const int64_t b = at_block.row;
  const int queries = static_cast<int>(a.queries);
  const MixedPlace at(thread, plan);
  const int first = at_block.tile * at.rows;
  const MixedQueries own_rows(a, a.matrix, b, first + 16 * at.strip, at.g);
  const int of_block = thread.block_z() % plan.blocks * plan.groups * kOwn, own = of_block + at.group * kOwn;
  const int of_next = of_block + plan.groups * kOwn, end = of_next < a.in_heads ? of_next : a.in_heads;
  const int chunk = thread.block_z() / plan.blocks * kChunk,
            values = a.out_heads - chunk < kChunk ? a.out_heads - chunk : kChunk;
  const KeyRange seen = keys_seen(a, b, first, first + at.rows < queries ? first + at.rows : queries);

  auto* const rows = static_cast<T*>(memory);  // rows of q, then of dout
  T* const of_chunk = rows + (kRelative ? 2 : 1) * a.in_heads * at.rows * kStride;
  const MixedMemory<T> memory_of(plan, rows, kStride);
  Ring<T> ring = memory_of.ring;
  const Exchange<T> exchange(memory_of.template fragments<T>(at.strip * Exchange<T>::of(Z::of_result(a))));
  [[maybe_unused]] float* const found = memory_of.products(thread, plan.strips * Exchange<T>::of(Z::of_result(a)));
  using Meets = MeetingOfQueries<T, kSize, kRelative>;
  const Meets logits = logits_of_queries<T, kSize, kRelative>(a, x, b, of_block, end, rows);
  const Meets given{{v, b, a.value_heads}, {dout, b, nullptr}, chunk, chunk + values, a.value_size, of_chunk};
  const auto tiles = tiles_of_keys<kRelative>(a, seen, first + at.rows - 1);
  Parts<Meets, 2, decltype(tiles)> parts({given, logits}, first, queries, tiles);
  const auto load = [&](T* place) { parts.load(thread, a, plan, place); };
  if (plan.kept > 0) {
    logits.keep(thread, a, plan, rows, first, queries);
    given.keep(thread, a, plan, of_chunk, first, queries);
  }
  ring.begin(thread, load);

  float of_pair[kOwn][kChunk][2] = {}, of_head[kOwn][2] = {};
  int number = 0;
  for (MixedTile tile = tiles(0); tile.there(); tile = tiles(++number)) {
    const int key = tile.from;
    each_part(thread, ring, plan.heads, chunk, chunk + values, load, [&](int begin, int part_end, const T* place) {
      exchange_gradients<kSize, Z::kAhead>(thread, a, plan, at, b, own_rows, key, given, begin, part_end, place,
                                           exchange, chunk);
    });
    Sum p[kOwn][2];
    each_part(thread, ring, plan.heads, of_block, end, load, [&](int begin, int part_end, const T* place) {
      MH_FOR (o, kOwn) {
        if (own + o < begin || own + o >= part_end) continue;
        multiply_queries<kSize, kRelative, Z::kAhead>(thread, p[o], logits, plan, at, place, begin, own + o, found);
        to_probabilities(thread, a, b, own + o, own_rows, key, tile.end, x.lse, p[o]);
        MH_FOR (e, 4) of_head[o][e / 2] += p[o][0].x[e] + p[o][1].x[e];
      }
    });
    if (a.has_dropout() && a.dropout_before_mixing) drop_tiles(a, b, own, end, own_rows.row, key + 2 * at.t, p);
    // The gradients of all heads are complete since the first barrier of the logits.
    MH_FOR (i, kChunk) {
      if (i >= values) break;
      Sum d[2];
      exchange.get(thread, i, d);
      MH_FOR (o, kOwn)
        MH_FOR (e, 4) of_pair[o][i][e / 2] += p[o][0].x[e] * d[0].x[e] + p[o][1].x[e] * d[1].x[e];
    }
  }
  thread.template wait<0>();
  MH_FOR (o, kOwn)
    MH_FOR (r, 2) {
      const bool there = own + o < a.in_heads && own_rows.row + 8 * r < queries && at.t == 0;
      const float sum = row_sum(thread, of_head[o][r]);
      if (there && chunk == 0) x.sums[(b * a.in_heads + own + o) * a.queries + own_rows.row + 8 * r] = sum;
      float* to = x.g + ((b * a.queries + own_rows.clamped[r]) * a.in_heads + own + o) * a.out_heads + chunk;
      MH_FOR (i, kChunk) {
        const float pair = row_sum(thread, of_pair[o][i][r]);
        if (there && i < values) to[i] = pair;
      }
    }
}

// Weights as the gradients are mixed with them: rounded if the tensor cores mix (Weights), so that P dP sums to d.
struct MixedWeights {
  bool bf16, fp16;
  float scale = 1;
  template <class T>
  static constexpr MixedWeights of(const AttentionParams& a) {
    const bool shared = a.matrix_query_stride == 0;
    return {shared && std::is_same_v<T, Bf16>, shared && std::is_same_v<T, Fp16>};
  }
  template <class Thread>
  MH_DEVICE float operator()(const Thread& thread, float x) const {
    float rounded = x, nothing;
    if (bf16) thread.unpack(thread.pack(x, 0, Bf16{}), rounded, nothing, Bf16{});
    if (fp16) thread.unpack(thread.pack(x / scale, 0, Fp16{}), rounded, nothing, Fp16{});
    return rounded * scale;
  }
};

// Divides x.g by the sums, and writes x.query_stats, with delta = Σ_i m[j, i] G[j, i], and the padding after it. One
// thread for each; any number of threads in a block, enough blocks for all.
template <class Thread>
MH_DEVICE void mixed_row_sums(const Thread& thread, const AttentionParams& a, const AttentionTensors& x,
                              MixedWeights weights) {
  const int64_t i = static_cast<int64_t>(thread.block_x()) * thread.threads() + thread.index(),
                all = x.batch * a.in_heads * a.queries;
  if (i >= all + kStatsPadding) return;
  QueryStats query{};
  if (i < all) {
    const int64_t t = i % a.queries, j = i / a.queries % a.in_heads, b = i / a.queries / a.in_heads;
    query.lse2 = x.lse[i] * kLog2E, query.inv_sum = x.sums[i] > 0 ? 1 / x.sums[i] : 0;
    float* of_pair = x.g + ((b * a.queries + t) * a.in_heads + j) * a.out_heads;
    const float* m = a.matrix + b * a.matrix_batch_stride + t * a.matrix_query_stride + j * a.out_heads;
    if (weights.fp16) weights.scale = power_below(m, 1, a.out_heads);
    for (int64_t e = 0; e < a.out_heads; ++e) {
      of_pair[e] *= query.inv_sum;
      query.delta += weights(thread, m[e]) * of_pair[e];
    }
  }
  x.query_stats[i] = query;
}

template <class T, int kSize, bool kRelative = false>
struct MixedQueryGradientTiles {
  static constexpr int kAhead = kRelative || kMixedAhead<T, kSize> < 2 ? 1 : 2;
  // Columns of the gradient computed by a block, limited by the registers of a warp: relative positions need two
  // accumulators.
  static constexpr int kColumns = (kRelative && kSize > 128) || kWidest<T, kSize> ? kSize / 2 : kSize,
                       kPieces = kSize / kColumns;
  static constexpr int kStride = kSize + kPad, kFit = heads_of_warp<T>(kRelative ? 2 * kColumns : kColumns);
  static constexpr int kOwn = kRelative && kFit > 2 ? 2 : kFit;
  static constexpr MixedPlan plan(const AttentionParams& a, int limit) {
    const int most = a.in_heads > a.out_heads ? a.in_heads : a.out_heads, of_row = kRelative ? 2 : 1;
    return mixed_plan<T>({.divided = a.in_heads,
                          .own = kOwn,
                          .staying = of_row * a.in_heads + a.out_heads,
                          .meeting = most,
                          .exchanged = Exchange<T>::of(a.out_heads),
                          .weights = rows_of_weights(a.out_heads),
                          .stays = of_row,
                          .window = kRelative},
                         kStride, limit);
  }
};

// Writes x.dq, and with kRelative x.dshifted: gradients of x.q and x.shifted, which are as in mixed_forward. Blocks:
// (order.blocks(), 1, plan.blocks * column blocks of kColumns).
template <class T, int kSize, bool kRelative, class Thread>
MH_DEVICE void mixed_query_gradient(const Thread& thread, const AttentionParams& a, const MixedPlan& plan,
                                    const BlockOrder& order, const KernelTensors<T>& x, void* memory) {
  using Z = MixedQueryGradientTiles<T, kSize, kRelative>;
  const Rows<const T>&v = x.v, &dout = x.dout;
  constexpr int kStride = Z::kStride, kOwn = Z::kOwn, kColumns = Z::kColumns;
  const BlockOrder::Place at_block = order.place(thread, true);
  const int64_t b = at_block.row;
  const int queries = static_cast<int>(a.queries);
  const MixedPlace at(thread, plan);
  const int first = at_block.tile * at.rows;
  const MixedQueries own_rows(a, a.matrix_transposed, b, first + 16 * at.strip, at.g);
  const int block = Z::kPieces > 1 ? thread.block_z() % plan.blocks : thread.block_z();
  const int column = Z::kPieces > 1 ? thread.block_z() / plan.blocks * kColumns : 0;
  const int of_block = block * plan.groups * kOwn, own = of_block + at.group * kOwn;
  const int of_next = of_block + plan.groups * kOwn, end = of_next < a.in_heads ? of_next : a.in_heads;
  const KeyRange seen = keys_seen(a, b, first, first + at.rows < queries ? first + at.rows : queries);

  auto* const rows = static_cast<T*>(memory);  // rows of dout, then of q
  T* const kept_queries = rows + a.out_heads * at.rows * kStride;
  const MixedMemory<T> memory_of(plan, rows, kStride);
  Ring<T> ring = memory_of.ring;
  const Exchange<T> exchange(memory_of.template fragments<T>(at.strip * Exchange<T>::of(a.out_heads)));
  if (at.group == 0) exchange.begin(thread, a.out_heads);
  [[maybe_unused]] float* const found = memory_of.products(thread, plan.strips * Exchange<T>::of(a.out_heads));
  using Meets = MeetingOfQueries<T, kSize, kRelative>;
  const Meets given{{v, b, a.value_heads}, {dout, b, nullptr}, 0, a.out_heads, a.value_size, rows};
  const Meets logits = logits_of_queries<T, kSize, kRelative>(a, x, b, of_block, end, kept_queries);
  const auto tiles = tiles_of_keys<kRelative>(a, seen, first + at.rows - 1);
  Parts<Meets, 2, decltype(tiles)> parts({given, logits}, first, queries, tiles);
  const auto load = [&](T* place) { parts.load(thread, a, plan, place); };
  if (plan.kept > 0) {
    given.keep(thread, a, plan, rows, first, queries);
    logits.keep(thread, a, plan, kept_queries, first, queries);
  }
  ring.begin(thread, load);
  const Weights<T, kOwn> weights(thread, plan, memory, a.shared_matrix(a.matrix_transposed, b), a.out_heads, a.in_heads,
                                 of_block, own);

  Sum sums[kOwn][kColumns / 8], by_distance[kRelative ? kOwn : 1][kRelative ? kColumns / 8 : 1];
  int number = 0;
  for (MixedTile tile = tiles(0); tile.there(); tile = tiles(++number)) {
    const int key = tile.from;
    each_part(thread, ring, plan.heads, 0, a.out_heads, load, [&](int begin, int part_end, const T* place) {
      exchange_gradients<kSize, Z::kAhead>(thread, a, plan, at, b, own_rows, key, given, begin, part_end, place,
                                           exchange, 0);
    });
    Sum dp[kOwn][2];
    const auto mix = [&] {
      if (weights.shared) weights.mix(thread, dp, exchange);
      else mix_rows(thread, dp, exchange, a.out_heads, own_rows.matrix, a.in_heads, own, end);
      if (a.has_dropout() && a.dropout_before_mixing) drop_tiles(a, b, own, end, own_rows.row, key + 2 * at.t, dp);
    };
    each_part(thread, ring, plan.heads, of_block, end, load, mix, [&](int begin, int part_end, const T* place) {
      MH_FOR (o, kOwn) {
        if (own + o < begin || own + o >= part_end) continue;
        Sum p[2], slopes[2];
        multiply_queries<kSize, kRelative, Z::kAhead>(thread, p, logits, plan, at, place, begin, own + o, found);
        float known[2][4];
        MH_FOR (r, 2)
          thread.read(known[r], &x.query_stats[(b * a.in_heads + own + o) * a.queries + own_rows.clamped[r]].lse2);
        const float log_sum[2] = {known[0][0], known[1][0]};
        to_probabilities<true>(thread, a, own_rows, key, tile.end, log_sum, p, slopes);
        MH_FOR (n, 2)
          MH_FOR (e, 4) slopes[n].x[e] *= known[e / 2][1] * (dp[o][n].x[e] * weights.scale(o) - known[e / 2][2]);
        multiply_add<kColumns, kStride>(thread, sums[o], slopes, logits.comes(plan, place, begin, own + o) + column);
        if constexpr (kRelative)
          multiply_add_sliding<T>(thread, by_distance[o], slopes, found,
                                  Window<T, kSize>{window_of_queries(logits, plan, at, place, begin, own + o)}, 0,
                                  column);
      }
    });
  }
  store_in_turns(thread, plan, at, [&](int turn) {
    const float factor[2] = {1, 1};
    const auto store_of = [&](int head, const Sum(&of_head)[kColumns / 8], const Rows<T>& to) {
      store_rows<kColumns, kStride>(thread, rows + (turn * at.rows + at.strip * 16) * kStride, of_head, factor,
                                    row_of(to, b, head, 0) + column, to.row_stride, first + 16 * at.strip, queries,
                                    a.key_size - column, a.aligned);
    };
    MH_FOR (o, kOwn) {
      if (own + o >= a.in_heads) break;
      store_of(own + o, sums[o], x.dq);
      if constexpr (kRelative) store_of(own + o, by_distance[o], x.dshifted);
    }
  });
}

}  // namespace mh::kernels
