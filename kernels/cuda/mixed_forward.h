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
  const int queries = static_cast<int>(a.queries), g = thread.lane() / 4, t = thread.lane() % 4;
  const int strip = thread.warp() / plan.groups, group = thread.warp() % plan.groups, rows = 16 * plan.strips;
  const int first = (thread.blocks_x() - 1 - thread.block_x()) * rows, own_row = first + 16 * strip + g;
  // The result's heads of this block, and of this warp.
  const int of_block = thread.block_z() * plan.groups * kOwn, own = of_block + group * kOwn;
  const int values = a.heads - of_block < plan.groups * kOwn ? a.heads - of_block : plan.groups * kOwn;
  const KeyRange seen = keys_seen(a, b, first, first + rows < queries ? first + rows : queries);
  const int tiles = seen.end > seen.first ? (seen.end - seen.first + 15) / 16 : 0;

  // Queries (heads, rows, kStride); tiles that stream by; what strips exchange.
  auto* of_queries = static_cast<T*>(memory);
  const int kept = a.in > plan.groups ? a.in : plan.groups, streaming = a.in > a.heads ? a.in : a.heads;
  const Ring<T> ring{of_queries + kept * rows * kStride, plan.slots, streaming * 16 * kStride};
  const Exchange<typename Z::Probability> exchange{
      reinterpret_cast<Left<typename Z::Probability>*>(ring.memory + ring.slots * ring.size) + strip * a.in * 32};
  const auto load = [&](int step) {  // keys and values in turn
    const int from = seen.first + step / 2 * 16;
    if (step / 2 < tiles && step % 2 == 0)
      load_heads<kSize>(thread, ring.slot(step), k, b, a.key_heads, 0, a.in, 16, from, seen.end, a.key_size, a.aligned);
    if (step / 2 < tiles && step % 2 == 1)
      load_heads<kSize>(thread, ring.slot(step), v, b, a.value_heads, of_block, values, 16, from, seen.end,
                        a.value_size, a.aligned);
    thread.end_group();
  };
  load_heads<kSize>(thread, of_queries, q, b, nullptr, 0, a.in, rows, first, queries, a.key_size, a.aligned);
  for (int step = 0; step < ring.slots; ++step) load(step);

  const int row[2] = {own_row < queries ? own_row : queries - 1, own_row + 8 < queries ? own_row + 8 : queries - 1};
  const float* matrix[2] = {a.matrix + b * a.matrix_row + row[0] * a.matrix_query,
                            a.matrix + b * a.matrix_row + row[1] * a.matrix_query};
  Sum sums[kOwn][kSize / 8];
  for (int tile = 0; tile < tiles; ++tile) {
    const int key = seen.first + tile * 16;
    ring.await(thread);
    for (int j = group; j < a.in; j += plan.groups) {
      Sum p[2];
      multiply_turned<kSize, kStride>(thread, p, of_queries + (j * rows + strip * 16) * kStride,
                                      ring.slot(2 * tile) + j * 16 * kStride);
      const float* of_head = log_sums + (b * a.in + j) * a.queries;
      MH_FOR (r, 2) {
        const float log_sum = of_head[row[r]] * kLog2E;
        MH_FOR (n, 2) {
          const int column = key + n * 8 + 2 * t;
          MH_FOR (e, 2) {
            float& x = p[n].x[2 * r + e];
            x = sees(a, seen.end, own_row + 8 * r, column + e) ? thread.exp2(logarithm(thread, a, x) - log_sum) : 0;
          }
          if (a.dropout != nullptr && a.dropped_first) drop_pair(a, b, j, own_row + 8 * r, column, r, p[n]);
        }
      }
      exchange.put(thread, j, p);
    }
    thread.barrier();
    load(2 * tile + ring.slots);
    Sum mixed[kOwn][2];
    for (int j = 0; j < a.in; ++j) {
      Sum p[2];
      exchange.get(thread, j, p);
      MH_FOR (i, kOwn)
        MH_FOR (r, 2) {
          const float m = own + i < a.heads ? matrix[r][j * a.heads + own + i] : 0;
          MH_FOR (n, 2) {
            mixed[i][n].x[2 * r] += m * p[n].x[2 * r];
            mixed[i][n].x[2 * r + 1] += m * p[n].x[2 * r + 1];
          }
        }
    }
    ring.await(thread);
    MH_FOR (i, kOwn) {
      if (own + i >= a.heads) break;
      if (a.dropout != nullptr && !a.dropped_first) {
        MH_FOR (r, 2)
          MH_FOR (n, 2) drop_pair(a, b, own + i, own_row + 8 * r, key + n * 8 + 2 * t, r, mixed[i][n]);
      }
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
    store_rows<kSize, kStride>(thread, of_queries + (group * rows + strip * 16) * kStride, sums[i], factor,
                               row_of(out, b, own + i, 0), out.position, first + 16 * strip, queries, a.value_size,
                               a.aligned);
  }
}

}  // namespace mh::kernels
