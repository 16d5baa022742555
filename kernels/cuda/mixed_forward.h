// Attention with mixed heads: from the log-sum-exp of each head (attention_forward without outputs), which mixing
// behind the softmax needs before it can begin, probabilities tile by tile, mixed, times V.
#pragma once

#include "cuda/mixed.h"

namespace mh::kernels {

template <class T, int kSize>
struct MixedForwardTiles {
  static constexpr int kStride = kSize + kPad, kOwn = heads_of_warp<T>(kSize);
  using Probability = typename Exchanged<T>::Probability;
  static constexpr MixedPlan plan(const MixedCall& a, int limit) {
    return mixed_plan<T>(a.heads, kOwn, a.in, a.in > a.heads ? a.in : a.heads, a.in, kStride, limit);
  }
};

// Blocks: (tiles of 16 * strips queries, batch, plan.blocks). log_sums (batch, in, queries).
template <class T, int kSize, class Thread>
MH_DEVICE void mixed_forward(const Thread& thread, const MixedCall& a, const MixedPlan& plan, const Rows<const T>& q,
                             const Rows<const T>& k, const Rows<const T>& v, const float* log_sums, const Rows<T>& out,
                             void* memory) {
  using Z = MixedForwardTiles<T, kSize>;
  constexpr int kStride = Z::kStride, kOwn = Z::kOwn;
  const int64_t b = thread.block_y();
  const int queries = static_cast<int>(a.queries);
  const MixedPlace at(thread, plan);
  const int first = (thread.blocks_x() - 1 - thread.block_x()) * at.rows;
  const MixedQueries own_rows(a, b, first + 16 * at.strip + at.g);
  // The result's heads of this block, and of this warp.
  const int of_block = thread.block_z() * plan.groups * kOwn, own = of_block + at.group * kOwn;
  const int values = a.heads - of_block < plan.groups * kOwn ? a.heads - of_block : plan.groups * kOwn;
  const KeyRange seen = keys_seen(a, b, first, first + at.rows < queries ? first + at.rows : queries);
  const int tiles = seen.end > seen.first ? (seen.end - seen.first + 15) / 16 : 0;

  // Queries (heads, rows, kStride); tiles that stream by; what strips exchange.
  auto* of_queries = static_cast<T*>(memory);
  const int kept = a.in > plan.groups ? a.in : plan.groups, streaming = a.in > a.heads ? a.in : a.heads;
  const Ring<T> ring{of_queries + kept * at.rows * kStride, plan.slots, streaming * 16 * kStride};
  const Exchange<typename Z::Probability> exchange{
      reinterpret_cast<Left<typename Z::Probability>*>(ring.memory + ring.slots * ring.size) + at.strip * a.in * 32};
  const InTurn<T> coming{
      {k, a.key_heads, 0, a.in, a.key_size}, {v, a.value_heads, of_block, values, a.value_size}, seen, tiles};
  const auto load = [&](int step) { coming.template load<kSize>(thread, a, b, ring, step); };
  load_heads<kSize>(thread, of_queries, q, b, nullptr, 0, a.in, at.rows, first, queries, a.key_size, a.aligned);
  for (int step = 0; step < ring.slots; ++step) load(step);

  Sum sums[kOwn][kSize / 8];
  for (int tile = 0; tile < tiles; ++tile) {
    const int key = seen.first + tile * 16;
    ring.await(thread);
    for (int j = at.group; j < a.in; j += plan.groups) {
      Sum p[2];
      multiply_turned<kSize, kStride>(thread, p, of_queries + (j * at.rows + at.strip * 16) * kStride,
                                      ring.slot(2 * tile) + j * 16 * kStride);
      probabilities(thread, a, b, j, own_rows, key, seen.end, log_sums, p);
      if (a.dropout != nullptr && a.dropped_first) drop_tile(a, b, j, own_rows.row, key + 2 * at.t, p);
      exchange.put(thread, j, p);
    }
    thread.barrier();
    load(2 * tile + ring.slots);
    Sum mixed[kOwn][2];
    mix(thread, mixed, exchange, a.in, [&](int j, int i, int, int x) {
      return own + i < a.heads ? own_rows.matrix[x / 2][j * a.heads + own + i] : 0;
    });
    ring.await(thread);
    MH_FOR (i, kOwn) {
      if (own + i >= a.heads) break;
      if (a.dropout != nullptr && !a.dropped_first) drop_tile(a, b, own + i, own_rows.row, key + 2 * at.t, mixed[i]);
      multiply_add<kSize, kStride>(thread, sums[i], mixed[i],
                                   ring.slot(2 * tile + 1) + (own + i - of_block) * 16 * kStride);
    }
    thread.barrier();
    load(2 * tile + 1 + ring.slots);
  }
  thread.template wait<0>();
  thread.barrier();
  const float factor[2] = {1, 1};
  MH_FOR (i, kOwn) {
    if (own + i >= a.heads) break;
    store_rows<kSize, kStride>(thread, of_queries + (at.group * at.rows + at.strip * 16) * kStride, sums[i], factor,
                               row_of(out, b, own + i, 0), out.position, first + 16 * at.strip, queries, a.value_size,
                               a.aligned);
  }
}

}  // namespace mh::kernels
