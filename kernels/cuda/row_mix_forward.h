// Forward pass of attention with head mixing for 16-bit types, mixed query by query (row_mix.h), from the log-sum-exp
// of each head (attention_forward without outputs).
#pragma once

#include "cuda/mixed_forward.h"
#include "cuda/row_mix.h"

namespace mh::kernels {

template <class Z, class T>
struct RowMixForwardTiles {
  using Tile = MixTile<Z::kQueries, Z::kKeys>;
  static constexpr int kUnits =
      Z::kQueries / Z::kQueriesAtOnce / Z::kWarps;  // queries or pairs of queries that a warp mixes
  static constexpr int most(const AttentionParams& a) { return a.in_heads > a.out_heads ? a.in_heads : a.out_heads; }
  static constexpr int slot(const AttentionParams& a) {
    return most(a) * Z::kKeys * Z::kStride;
  }  // size of a slot in elements
  static constexpr RowMixPlan plan(const AttentionParams& a, int limit) {
    return {a.in_heads * Z::kQueries * Z::kStride * 2, slot(a) * 2, Tile::template bytes<Z::kMixed>(a), limit};
  }
};

// Returns whether the parameters need only a product, a logarithm and an exponential for each element of a tile whose
// queries see all of its keys.
MH_DEVICE bool is_simple(const AttentionParams& a) { return a.normaliser == Normaliser::softmax && !a.has_dropout(); }

// Computes a warp's probabilities of 16 queries, of which a lane has two, and kColumns * 8 keys. kUsual: softmax, and
// all queries see all keys.
template <bool kUsual, int kColumns, class Thread>
MH_DEVICE void to_probabilities(const Thread& thread, const AttentionParams& a, int query, int key, int end,
                                const float (&lse2)[2], Sum (&p)[kColumns]) {
  const auto exponentials = [&](const auto& normaliser) {
    MH_FOR (n, kColumns)
      MH_FOR (i, 4) p[n].x[i] = thread.exp2(normaliser.logarithm(thread, p[n].x[i]) - lse2[i / 2]);
  };
  if constexpr (kUsual) {
    exponentials(OfSoftmax{a.scale * kLog2E, a.scale});
  } else {
    hide_unseen<false>(thread, a, end, query, key, p);
    by_normaliser(a, exponentials);
  }
}

// Writes x.out. Blocks: (order.blocks(), 1, splits).
template <class Z, class T, class Thread>
MH_DEVICE void row_mix_forward(const Thread& thread, const AttentionParams& a, const RowMixPlan& plan,
                               const BlockOrder& order, const KernelTensors<T>& x, const MixedSplits& splits,
                               void* memory) {
  using Sizes = RowMixForwardTiles<Z, T>;
  using Tile = typename Sizes::Tile;
  using Probability = typename Z::Probability;
  constexpr int kSize = Z::kSize, kStride = Z::kStride, kOwn = Z::kOwn, kStrips = Tile::kStrips;
  const BlockOrder::Place place = order.place(thread, true);
  const int64_t b = place.row;
  const int queries = static_cast<int>(a.queries), first = place.tile * Z::kQueries, g = thread.lane() / 4,
            t = thread.lane() % 4, own = thread.warp() * kOwn;
  const KeyRange seen = split_of(keys_seen(a, b, first, first + Z::kQueries < queries ? first + Z::kQueries : queries),
                                 Z::kKeys, thread.block_z(), splits.count);

  auto* const of_queries = static_cast<T*>(memory);
  Ring<T> ring{of_queries + a.in_heads * Z::kQueries * kStride, plan.slots, Sizes::slot(a)};
  const Tile tile =
      Tile::template in<Z::kMixed>(thread, a, reinterpret_cast<uint16_t*>(ring.memory + ring.slots * ring.size));
  const HeadRows<Z, T, Z::kKeys> keys(thread, a, x.k, b, a.key_heads, a.in_heads, a.key_size),
      values(thread, a, x.v, b, a.value_heads, a.out_heads, a.value_size);
  int part = 0;  // streamed part: keys and values alternate
  const auto load = [&](T* to) {
    if (const int key = seen.first + part / 2 * Z::kKeys; key < seen.end) {
      if (part % 2 == 0) keys.load(thread, to, key, seen.end);
      else values.load(thread, to, key, seen.end);
    }
    ++part;
    thread.end_group();
  };
  HeadRows<Z, T, Z::kQueries>(thread, a, x.q, b, nullptr, a.in_heads, a.key_size)
      .load(thread, of_queries, first, queries);
  ring.begin(thread, load);

  const auto clamped = [&](int query) { return query < queries ? query : queries - 1; };
  float lse2[kOwn][kStrips][2];
  MH_FOR (o, kOwn)
    MH_FOR (strip, kStrips)
      MH_FOR (r, 2)
        lse2[o][strip][r] =
            own + o < a.in_heads
                ? x.lse[(b * a.in_heads + own + o) * queries + clamped(first + 16 * strip + g + 8 * r)] * kLog2E
                : 0;
  MixMatrix<Probability, Z::kMixed> matrices[Sizes::kUnits];
  const auto query_of = [&](int u) { return (thread.warp() + u * Z::kWarps) * Z::kQueriesAtOnce; };
  const auto matrix_of = [&](int query) {
    return a.matrix + b * a.matrix_batch_stride + clamped(query) * a.matrix_query_stride;
  };
  MH_FOR (u, Sizes::kUnits)
    matrices[u].read(thread, matrix_of(first + query_of(u)), matrix_of(first + query_of(u) + 1), a.out_heads,
                     a.in_heads, 1, a.out_heads);

  Sum sums[kOwn][kStrips][kSize / 8];
  const bool simple = is_simple(a);
  MH_ROLLED
  for (int key = seen.first; key < seen.end; key += Z::kKeys) {
    by_case(simple && all_see(a, seen.end, first, Z::kQueries, key, Z::kKeys), [&](auto usual) {
      constexpr bool kUsual = decltype(usual)::value;
      ring.await(thread, load);
      MH_FOR (o, kOwn) {
        const int j = own + o;
        if (j >= a.in_heads) break;
        multiply_strips<kSize, kStrips, Z::kKeys>(
            thread, of_queries + j * Z::kQueries * kStride, ring.place() + j * Z::kKeys * kStride,
            [&](int strip, Sum(&p)[Z::kKeys / 8]) {
              const int query = first + 16 * strip;
              to_probabilities<kUsual>(thread, a, query, key, seen.end, lse2[o][strip], p);
              if (!kUsual && a.has_dropout() && a.dropout_before_mixing) drop(a, b, j, query + g, key + 2 * t, p);
              tile.template put<Probability>(thread, j, strip, p);
            });
      }
      ring.end();
      ring.await(thread, load);
      mix_queries<Probability, T, false>(thread, tile, query_of, a.in_heads, a.out_heads, matrices);
      thread.barrier();
      MH_FOR (o, kOwn) {
        const int i = own + o;
        if (i >= a.out_heads) break;
        const T* const of_values = ring.place() + i * Z::kKeys * kStride;
        const auto drops = [&](int strip, int column, Sum(&p)[2]) {
          drop(a, b, i, first + 16 * strip + g, key + column + 2 * t, p);
        };
        if (!kUsual && a.has_dropout() && !a.dropout_before_mixing)
          accumulate<kSize, T, true>(thread, sums[o], tile, i, of_values, drops);
        else accumulate<kSize, T, false>(thread, sums[o], tile, i, of_values, drops);
      }
      ring.end();
    });
  }
  thread.template wait<0>();
  thread.barrier();
  MH_FOR (o, kOwn) {
    const int i = own + o;
    if (i >= a.out_heads) break;
    MH_FOR (strip, kStrips) {
      const int query = first + 16 * strip;
      float factor[2];  // scales by which the rows of its matrix were divided
      MH_FOR (r, 2) factor[r] = power_below(matrix_of(query + g + 8 * r) + i, a.out_heads, a.in_heads);
      if (splits.count > 1) {
        MH_FOR (r, 2) {
          if (query + g + 8 * r >= queries) continue;
          float* const sum = splits.of(a, b, i, query + g + 8 * r, thread.block_z());
          MH_FOR (n, kSize / 8)
            MH_FOR (e, 2)
              if (const int column = n * 8 + 2 * t + e; column < a.value_size)
                sum[column] = sums[o][strip][n].x[2 * r + e] * factor[r];
        }
      } else {
        store_rows<kSize, kStride>(thread, of_queries + thread.warp() * 16 * kStride, sums[o][strip], factor,
                                   row_of(x.out, b, i, 0), x.out.row_stride, query, queries, a.value_size, a.aligned);
      }
    }
  }
}

}  // namespace mh::kernels
