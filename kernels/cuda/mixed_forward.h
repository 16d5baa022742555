// Forward pass of attention with head mixing: mixing after the softmax first needs the log-sum-exp of each head
// (attention_forward without outputs); with it, probabilities are recomputed tile by tile, mixed, and multiplied by V.
#pragma once

#include "cuda/mixed_relative.h"

namespace mh::kernels {

template <class T, int kSize, bool kRelative = false>
struct MixedForwardTiles {
  static constexpr int kStride = kSize + kPad, kOwn = heads_of_warp<T>(kSize);
  static constexpr int kAhead = kRelative ? 1 : kMixedAhead<T, kSize>;
  using Probability = typename Exchanged<T>::Probability;
  static constexpr MixedPlan plan(const AttentionParams& a, int limit) {
    const int most = a.in_heads > a.out_heads ? a.in_heads : a.out_heads, of_row = kRelative ? 2 : 1;
    return mixed_plan<T>({.divided = a.out_heads,
                          .own = kOwn,
                          .staying = of_row * a.in_heads,
                          .meeting = most,
                          .exchanged = Exchange<T>::of(a.in_heads),
                          .weights = rows_of_weights(a.in_heads),
                          .stays = of_row,
                          .window = kRelative},
                         kStride, limit);
  }
};

// The splits of the keys, a power of two, and the partial output of each: (batch, out_heads, queries, num_splits,
// value_size), summed by combine_mixed_splits.
struct MixedSplits {
  int count, bits;  // bits of count - 1; a division would take registers that are not free
  float* partial_out;
  explicit MixedSplits(const AttentionTensors& x) : count(x.num_splits), bits(0), partial_out(x.partial_out) {
    while (1 << bits < count) ++bits;
  }
  MH_DEVICE float* of(const AttentionParams& a, int64_t b, int head, int query, int split) const {
    return partial_out + (((b * a.out_heads + head) * a.queries + query) * count + split) * a.value_size;
  }
};

// Writes x.out. Blocks: (order.blocks(), 1, plan.blocks * splits). kRelative: x.q is q + u, x.shifted q + v, and there
// is one split, since registers are scarce. With several splits it writes partial results, and combine_mixed_splits()
// x.out.
template <class T, int kSize, bool kRelative, class Thread>
MH_DEVICE void mixed_forward(const Thread& thread, const AttentionParams& a, const MixedPlan& plan,
                             const BlockOrder& order, const KernelTensors<T>& x, const MixedSplits& splits,
                             void* memory) {
  using Z = MixedForwardTiles<T, kSize, kRelative>;
  using Probability = typename Z::Probability;
  constexpr int kStride = Z::kStride, kOwn = Z::kOwn;
  constexpr bool kDivides = !kRelative;
  const Rows<const T>& v = x.v;
  const Rows<T>& out = x.out;
  const BlockOrder::Place at_block = order.place(thread, true);
  const int64_t b = at_block.row;
  const int queries = static_cast<int>(a.queries);
  const MixedPlace at(thread, plan);
  const int first = at_block.tile * at.rows;
  const MixedQueries own_rows(a, a.matrix, b, first + 16 * at.strip, at.g);
  // Output heads of this block, and of this warp.
  const int of_block = (kDivides ? thread.block_z() >> splits.bits : thread.block_z()) * plan.groups * kOwn,
            own = of_block + at.group * kOwn;
  const int of_next = of_block + plan.groups * kOwn, end = of_next < a.out_heads ? of_next : a.out_heads;
  const KeyRange seen = split_of(keys_seen(a, b, first, first + at.rows < queries ? first + at.rows : queries), 16,
                                 kDivides ? thread.block_z() & (splits.count - 1) : 0, kDivides ? splits.count : 1);

  auto* const rows = static_cast<T*>(memory);
  const MixedMemory<T> memory_of(plan, rows, kStride);
  Ring<T> ring = memory_of.ring;
  const Exchange<Probability> exchange(
      memory_of.template fragments<Probability>(at.strip * Exchange<T>::of(a.in_heads)));
  if (at.group == 0) exchange.begin(thread, a.in_heads);
  [[maybe_unused]] float* const found = memory_of.products(thread, plan.strips * Exchange<T>::of(a.in_heads));
  using Meets = MeetingOfQueries<T, kSize, kRelative>;
  const Meets logits = logits_of_queries<T, kSize, kRelative>(a, x, b, 0, a.in_heads, rows);
  const Meets results{{v, b, a.value_heads}, {}, of_block, end, a.value_size, nullptr};
  const auto tiles = tiles_of_keys<kRelative>(a, seen, first + at.rows - 1);
  Parts<Meets, 2, decltype(tiles)> parts({logits, results}, first, queries, tiles);
  const auto load = [&](T* place) { parts.load(thread, a, plan, place); };
  if (plan.kept > 0) logits.keep(thread, a, plan, rows, first, queries);
  ring.begin(thread, load);
  const Weights<Probability, kOwn> weights(thread, plan, memory, a.shared_matrix(a.matrix, b), a.in_heads, a.out_heads,
                                           of_block, own);

  Sum sums[kOwn][kSize / 8];
  int number = 0;
  for (MixedTile tile = tiles(0); tile.there(); tile = tiles(++number)) {
    const int key = tile.from;
    each_part(thread, ring, plan.heads, 0, a.in_heads, load, [&](int begin, int part_end, const T* place) {
      MH_ROLLED  // an iteration keeps products of a whole tile: two do not fit into registers
      for (int j = begin + at.group; j < part_end; j += plan.groups) {
        Sum p[2];
        multiply_queries<kSize, kRelative, Z::kAhead>(thread, p, logits, plan, at, place, begin, j, found);
        to_probabilities(thread, a, b, j, own_rows, key, tile.end, x.lse, p);
        if (a.has_dropout() && a.dropout_before_mixing) drop(a, b, j, own_rows.row, key + 2 * at.t, p);
        exchange.put(thread, j, p);
      }
    });
    Sum mixed[kOwn][2];
    const auto mix = [&] {
      if (weights.shared) weights.mix(thread, mixed, exchange);
      else mix_rows(thread, mixed, exchange, a.in_heads, own_rows.matrix, a.out_heads, own, end);
      if (a.has_dropout() && !a.dropout_before_mixing) drop_tiles(a, b, own, end, own_rows.row, key + 2 * at.t, mixed);
    };
    each_part(thread, ring, plan.heads, of_block, end, load, mix, [&](int begin, int part_end, const T* place) {
      MH_FOR (i, kOwn) {
        if (own + i < begin || own + i >= part_end) continue;
        multiply_add<kSize, kStride>(thread, sums[i], mixed[i], results.comes(plan, place, begin, own + i));
      }
    });
  }
  thread.barrier();  // without a tile there was no barrier
  float scales[kOwn];
  MH_FOR (i, kOwn) scales[i] = weights.scale(i);
  if (kDivides && splits.count > 1) {
    thread.template wait<0>();
    MH_FOR (i, kOwn) {
      if (own + i >= a.out_heads) break;
      MH_FOR (r, 2) {
        if (own_rows.row + 8 * r >= queries) continue;
        float* const sum = splits.of(a, b, own + i, own_rows.row + 8 * r, thread.block_z() & (splits.count - 1));
        MH_FOR (n, kSize / 8)
          MH_FOR (e, 2)
            if (const int column = n * 8 + 2 * at.t + e; column < a.value_size)
              sum[column] = sums[i][n].x[2 * r + e] * scales[i];
      }
    }
    return;
  }
  store_in_turns(thread, plan, at, [&](int turn) {
    MH_FOR (i, kOwn) {
      if (own + i >= a.out_heads) break;
      store_rows<kSize, kStride>(thread, rows + (turn * at.rows + at.strip * 16) * kStride, sums[i],
                                 {scales[i], scales[i]}, row_of(out, b, own + i, 0), out.row_stride,
                                 first + 16 * at.strip, queries, a.value_size, a.aligned);
    }
  });
}

// Sums the splits of mixed_forward into x.out. One warp for each query; blocks: (queries / 4 rounded up, batch *
// out_heads), of 128 threads.
template <class T, class Thread>
MH_DEVICE void combine_mixed_splits(const Thread& thread, const AttentionParams& a, const KernelTensors<T>& x,
                                    const MixedSplits& splits) {
  const int64_t b = thread.block_y() / a.out_heads;
  const int head = thread.block_y() % a.out_heads, row = thread.block_x() * 4 + thread.warp();
  if (row >= a.queries) return;
  for (int c = thread.lane(); c < a.value_size; c += 32) {
    float sum = 0;
    for (int split = 0; split < splits.count; ++split) sum += splits.of(a, b, head, row, split)[c];
    put(thread, row_of(x.out, b, head, row) + c, sum);
  }
}

}  // namespace mh::kernels
