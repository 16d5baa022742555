// Backward pass of attention with head mixing for 16-bit types, mixed query by query (row_mix.h), in three kernels,
// each of which recomputes the probabilities (equations: mixed_backward.h): sums over the keys of each query; dQ; dK
// and dV. Delta is summed from the same rounded dP that the other two kernels subtract it from, so that the gradients
// of a query's logits sum to zero.
#pragma once

#include "cuda/row_mix_forward.h"

namespace mh::kernels {

// Statistics of a lane's two queries of a strip, for one head.
struct RowStats {
  float lse2[2], inv_sum[2], delta[2];
  template <class Thread>
  MH_DEVICE void read(const Thread& thread, const QueryStats* of_head, int query, int queries) {
    MH_FOR (r, 2) {
      const int row = query + 8 * r < queries ? query + 8 * r : queries - 1;
      float known[4];
      thread.read(known, &of_head[row].lse2);
      lse2[r] = known[0], inv_sum[r] = known[1], delta[r] = known[2];
    }
  }
};

// Computes p and slopes from products of 16 queries and kColumns * 8 keys: probabilities, and probabilities times the
// derivative of the logits by the products.
template <bool kUsual, int kColumns, class Thread>
MH_DEVICE void to_slopes(const Thread& thread, const AttentionParams& a, int query, int key, int end,
                         const RowStats& stats, Sum (&p)[kColumns], Sum (&slopes)[kColumns]) {
  const auto exponentials = [&](const auto& normaliser) {
    MH_FOR (n, kColumns)
      MH_FOR (i, 4) {
        const float product = p[n].x[i];
        const float x = thread.exp2(normaliser.logarithm(thread, product) - stats.lse2[i / 2]) * stats.inv_sum[i / 2];
        p[n].x[i] = x, slopes[n].x[i] = normaliser.by_slope(thread, x, x, product);
      }
  };
  if constexpr (kUsual) {
    exponentials(OfSoftmax{a.scale * kLog2E, a.scale});
  } else {
    hide_unseen<false>(thread, a, end, query, key, p);
    by_normaliser(a, exponentials);
  }
}

// Replaces a warp's dP of a head in a tile, strip `strip`, by dS = slopes (dP - delta), and accumulates like
// accumulate().
template <class T, bool kDrops, int kColumns, class Tile, class Thread, class Drops>
MH_DEVICE void to_logit_gradients(const Thread& thread, const Tile& tile, int head, int strip, const RowStats& stats,
                                  Sum (&slopes)[kColumns], const Drops& drops) {
  MH_FOR (c, kColumns / 2) {
    Sum dp[2];
    tile.template get<T>(thread, head, strip, 16 * c, dp);
    if constexpr (kDrops) drops(strip, 16 * c, dp);
    MH_FOR (n, 2)
      MH_FOR (e, 4) slopes[2 * c + n].x[e] *= dp[n].x[e] - stats.delta[e / 2];
  }
  thread.warp_barrier();
  tile.template put<T>(thread, head, strip, slopes);
}

template <class Z, class T>
struct RowMixSumsTiles {
  static constexpr int kQueries = whole_strips(2048 / (Z::kOwn * Z::kSize), 32), kKeys = Z::kKeys;
  using Tile = MixTile<kQueries, kKeys>;
  static constexpr int kUnits = kQueries / Z::kQueriesAtOnce / Z::kWarps;
  static constexpr int slot(const AttentionParams& a) { return RowMixForwardTiles<Z, T>::most(a) * kKeys * Z::kStride; }
  static constexpr RowMixPlan plan(const AttentionParams& a, int limit) {
    return {(a.in_heads + a.out_heads) * kQueries * Z::kStride * 2, slot(a) * 2, 2 * Tile::template bytes<Z::kMixed>(a),
            limit};
  }
};

// Computes pairs += P dP̄ᵀ over the keys of a tile, (in heads, out heads) for the queries of one product. With two
// queries the second one has the lower half of the rows.
template <class T, int kMixed, class Tile, class Thread>
MH_DEVICE void sum_pairs(const Thread& thread, Sum (&pairs)[kMixed / 8], const Tile& p, const Tile& dp, int query,
                         int in_heads, int out_heads) {
  const int lane = thread.lane();
  const int p_head = lane % kMixed, p_query = kMixed == 8 ? query + lane / 8 % 2 : query;
  const int dp_head = kMixed == 8 ? lane % 8 : lane % 8 + lane / 16 * 8,
            dp_query = kMixed == 8 ? query + lane / 16 : query;
  const uint16_t* const of_p =
      p.memory + (p_head < in_heads ? p_head : p.zeros) * Tile::kHeadStride + p_query * Tile::kStride + lane / 16 * 8;
  const uint16_t* const of_dp = dp.memory + (dp_head < out_heads ? dp_head : dp.zeros) * Tile::kHeadStride +
                                dp_query * Tile::kStride + lane / 8 % 2 * 8;
  MH_FOR (n, Tile::kKeys / 16) {
    uint32_t x[4], y[4];
    thread.load_matrices(x, of_p + 16 * n);
    thread.load_matrices(y, of_dp + 16 * n);
    MH_FOR (c, 2) {
      const uint32_t right[2] = {y[2 * c], y[2 * c + 1]};
      if constexpr (kMixed == 8) {
        const uint32_t left[4] = {c == 0 ? x[0] : 0, c == 0 ? 0 : x[1], c == 0 ? x[2] : 0, c == 0 ? 0 : x[3]};
        thread.multiply(pairs[0].x, left, right, T{});
      } else {
        thread.multiply(pairs[c].x, x, right, T{});
      }
    }
  }
}

// Writes x.g, the gradient of each query's matrix, or, if queries share one, of each tile of queries; and
// x.query_stats. Blocks: (order.blocks()).
template <class Z, class T, class Thread>
MH_DEVICE void row_mix_sums(const Thread& thread, const AttentionParams& a, const RowMixPlan& plan,
                            const BlockOrder& order, const KernelTensors<T>& x, void* memory) {
  using Sizes = RowMixSumsTiles<Z, T>;
  using Tile = typename Sizes::Tile;
  constexpr int kSize = Z::kSize, kStride = Z::kStride, kOwn = Z::kOwn, kStrips = Tile::kStrips,
                kQueries = Sizes::kQueries, kKeys = Sizes::kKeys;
  const BlockOrder::Place place = order.place(thread, true);
  const int64_t b = place.row;
  const int queries = static_cast<int>(a.queries), first = place.tile * kQueries, g = thread.lane() / 4,
            t = thread.lane() % 4, own = thread.warp() * kOwn;
  const KeyRange seen = keys_seen(a, b, first, first + kQueries < queries ? first + kQueries : queries);

  auto* const of_queries = static_cast<T*>(memory);
  T* const of_dout = of_queries + a.in_heads * kQueries * kStride;
  Ring<T> ring{of_dout + a.out_heads * kQueries * kStride, plan.slots, Sizes::slot(a)};
  auto* const of_tiles = reinterpret_cast<uint16_t*>(ring.memory + ring.slots * ring.size);
  const Tile probabilities = Tile::template in<Z::kMixed>(thread, a, of_tiles),
             gradients = Tile::template in<Z::kMixed>(thread, a, of_tiles + Tile::template bytes<Z::kMixed>(a) / 2);
  const HeadRows<Z, T, kKeys> keys(thread, a, x.k, b, a.key_heads, a.in_heads, a.key_size),
      values(thread, a, x.v, b, a.value_heads, a.out_heads, a.value_size);
  int part = 0;  // streamed part: keys and values alternate
  const auto load = [&](T* to) {
    if (const int key = seen.first + part / 2 * kKeys; key < seen.end) {
      if (part % 2 == 0) keys.load(thread, to, key, seen.end);
      else values.load(thread, to, key, seen.end);
    }
    ++part;
    thread.end_group();
  };
  HeadRows<Z, T, kQueries>(thread, a, x.q, b, nullptr, a.in_heads, a.key_size).load(thread, of_queries, first, queries);
  HeadRows<Z, T, kQueries>(thread, a, x.dout, b, nullptr, a.out_heads, a.value_size)
      .load(thread, of_dout, first, queries);
  ring.begin(thread, load);

  const auto clamped = [&](int query) { return query < queries ? query : queries - 1; };
  float lse2[kOwn][kStrips][2], sum[kOwn][kStrips][2] = {}, delta[kOwn][kStrips][2] = {};
  MH_FOR (o, kOwn)
    MH_FOR (strip, kStrips)
      MH_FOR (r, 2)
        lse2[o][strip][r] =
            own + o < a.in_heads
                ? x.lse[(b * a.in_heads + own + o) * queries + clamped(first + 16 * strip + g + 8 * r)] * kLog2E
                : 0;
  MixMatrix<T, Z::kMixed> matrices[Sizes::kUnits];
  Sum pairs[Sizes::kUnits][Z::kMixed / 8];
  const auto query_of = [&](int u) { return (thread.warp() + u * Z::kWarps) * Z::kQueriesAtOnce; };
  MH_FOR (u, Sizes::kUnits) {
    const auto of = [&](int i) { return a.matrix + b * a.matrix_batch_stride + clamped(i) * a.matrix_query_stride; };
    matrices[u].read(thread, of(first + query_of(u)), of(first + query_of(u) + 1), a.in_heads, a.out_heads, a.out_heads,
                     1);
  }

  const bool simple = is_simple(a);
  MH_ROLLED
  for (int key = seen.first; key < seen.end; key += kKeys) {
    by_case(simple && all_see(a, seen.end, first, kQueries, key, kKeys), [&](auto usual) {
      constexpr bool kUsual = decltype(usual)::value;
      ring.await(thread, load);
      Sum p[kOwn][kStrips][kKeys / 8];
      MH_FOR (o, kOwn) {
        const int j = own + o;
        if (j >= a.in_heads) break;
        multiply_strips<kSize, kStrips, kKeys>(
            thread, of_queries + j * kQueries * kStride, ring.place() + j * kKeys * kStride,
            [&](int strip, Sum(&products)[Sizes::kKeys / 8]) {
              const int query = first + 16 * strip;
              to_probabilities<kUsual>(thread, a, query, key, seen.end, lse2[o][strip], products);
              MH_FOR (n, kKeys / 8) {
                MH_FOR (e, 4) sum[o][strip][e / 2] += products[n].x[e];
                p[o][strip][n] = products[n];
              }
              if (!kUsual && a.has_dropout() && a.dropout_before_mixing)
                drop(a, b, j, query + g, key + 2 * t, products);
              probabilities.template put<T>(thread, j, strip, products);
            });
      }
      ring.end();
      ring.await(thread, load);
      MH_FOR (o, kOwn) {
        const int i = own + o;
        if (i >= a.out_heads) break;
        multiply_strips<kSize, kStrips, kKeys>(thread, of_dout + i * kQueries * kStride,
                                               ring.place() + i * kKeys * kStride,
                                               [&](int strip, Sum(&dp)[Sizes::kKeys / 8]) {
                                                 if (!kUsual && a.has_dropout() && !a.dropout_before_mixing)
                                                   drop(a, b, i, first + 16 * strip + g, key + 2 * t, dp);
                                                 gradients.template put<T>(thread, i, strip, dp);
                                               });
      }
      ring.end();
      thread.barrier();
      MH_FOR (u, Sizes::kUnits)
        sum_pairs<T, Z::kMixed>(thread, pairs[u], probabilities, gradients, query_of(u), a.in_heads, a.out_heads);
      mix_queries<T, T, true>(thread, gradients, query_of, a.out_heads, a.in_heads, matrices);
      thread.barrier();
      MH_FOR (o, kOwn) {
        const int j = own + o;
        if (j >= a.in_heads) break;
        MH_FOR (strip, kStrips)
          MH_FOR (c, kKeys / 16) {
            Sum dp[2];
            gradients.template get<T>(thread, j, strip, 16 * c, dp);
            if (!kUsual && a.has_dropout() && a.dropout_before_mixing)
              drop(a, b, j, first + 16 * strip + g, key + 16 * c + 2 * t, dp);
            MH_FOR (n, 2)
              MH_FOR (e, 4) delta[o][strip][e / 2] += p[o][strip][2 * c + n].x[e] * dp[n].x[e];
          }
      }
    });
  }
  thread.template wait<0>();
  thread.barrier();
  auto* const inverses = reinterpret_cast<float*>(memory);  // (in heads, kQueries)
  MH_FOR (o, kOwn) {
    const int j = own + o;
    if (j >= a.in_heads) break;
    MH_FOR (strip, kStrips)
      MH_FOR (r, 2) {
        const float all = row_sum(thread, sum[o][strip][r]), of_row = row_sum(thread, delta[o][strip][r]);
        const int row = 16 * strip + g + 8 * r;
        const float inverse = all > 0 ? 1 / all : 0;
        if (t != 0) continue;
        inverses[j * kQueries + row] = inverse;
        if (first + row < queries)
          x.query_stats[(b * a.in_heads + j) * queries + first + row] = {lse2[o][strip][r], inverse, of_row * inverse,
                                                                         0};
      }
  }
  thread.barrier();
  MH_FOR (u, Sizes::kUnits)
    MH_FOR (c, Z::kMixed / 8)
      MH_FOR (e, 4) {
        const int query = query_of(u) + (Z::kMixed == 8 ? e / 2 : 0), j = g + (Z::kMixed == 16 ? e / 2 * 8 : 0),
                  i = 8 * c + 2 * t + e % 2;
        if (j >= a.in_heads || i >= a.out_heads) continue;
        pairs[u][c].x[e] *= inverses[j * kQueries + query];
        if (a.matrix_query_stride != 0 && first + query < queries)
          x.g[((b * queries + first + query) * a.in_heads + j) * a.out_heads + i] = pairs[u][c].x[e];
      }
  if (a.matrix_query_stride != 0) return;
  // For a shared matrix, sums over the queries of the block: first of each warp, then over the warps in order.
  float* const of_warps = inverses + a.in_heads * kQueries;  // (warps, in heads, out heads)
  const int numbers = a.in_heads * a.out_heads;
  MH_FOR (c, Z::kMixed / 8)
    MH_FOR (e, 4) {
      float of_warp = 0;
      MH_FOR (u, Sizes::kUnits) of_warp += pairs[u][c].x[e] + (Z::kMixed == 8 ? pairs[u][c].x[e ^ 2] : 0);
      const int j = g + (Z::kMixed == 16 ? e / 2 * 8 : 0), i = 8 * c + 2 * t + e % 2;
      if ((Z::kMixed == 16 || e < 2) && j < a.in_heads && i < a.out_heads)
        of_warps[thread.warp() * numbers + j * a.out_heads + i] = of_warp;
    }
  thread.barrier();
  for (int n = thread.index(); n < numbers; n += thread.threads()) {
    float all = 0;
    for (int warp = 0; warp < Z::kWarps; ++warp) all += of_warps[warp * numbers + n];
    x.g[(b * order.tiles + place.tile) * numbers + n] = all;
  }
}

template <class Z, class T>
struct RowMixQueryGradientTiles {
  static constexpr int kKeys = 16;
  using Tile = MixTile<Z::kQueries, kKeys>;
  static constexpr int kUnits = RowMixForwardTiles<Z, T>::kUnits;
  static constexpr int slot(const AttentionParams& a) { return RowMixForwardTiles<Z, T>::most(a) * kKeys * Z::kStride; }
  static constexpr RowMixPlan plan(const AttentionParams& a, int limit) {
    return {(a.in_heads + a.out_heads) * Z::kQueries * Z::kStride * 2, slot(a) * 2, Tile::template bytes<Z::kMixed>(a),
            limit};
  }
};

// Writes x.dq. Blocks: (order.blocks()).
template <class Z, class T, class Thread>
MH_DEVICE void row_mix_query_gradient(const Thread& thread, const AttentionParams& a, const RowMixPlan& plan,
                                      const BlockOrder& order, const KernelTensors<T>& x, void* memory) {
  using Sizes = RowMixQueryGradientTiles<Z, T>;
  using Tile = typename Sizes::Tile;
  constexpr int kSize = Z::kSize, kStride = Z::kStride, kOwn = Z::kOwn, kStrips = Tile::kStrips, kKeys = Sizes::kKeys;
  const BlockOrder::Place place = order.place(thread, true);
  const int64_t b = place.row;
  const int queries = static_cast<int>(a.queries), first = place.tile * Z::kQueries, g = thread.lane() / 4,
            t = thread.lane() % 4, own = thread.warp() * kOwn;
  const KeyRange seen = keys_seen(a, b, first, first + Z::kQueries < queries ? first + Z::kQueries : queries);

  auto* const of_queries = static_cast<T*>(memory);
  T* const of_dout = of_queries + a.in_heads * Z::kQueries * kStride;
  Ring<T> ring{of_dout + a.out_heads * Z::kQueries * kStride, plan.slots, Sizes::slot(a)};
  const Tile tile =
      Tile::template in<Z::kMixed>(thread, a, reinterpret_cast<uint16_t*>(ring.memory + ring.slots * ring.size));
  const HeadRows<Z, T, kKeys> keys(thread, a, x.k, b, a.key_heads, a.in_heads, a.key_size),
      values(thread, a, x.v, b, a.value_heads, a.out_heads, a.value_size);
  int part = 0;  // streamed part: values and keys alternate
  const auto load = [&](T* to) {
    if (const int key = seen.first + part / 2 * kKeys; key < seen.end) {
      if (part % 2 == 0) values.load(thread, to, key, seen.end);
      else keys.load(thread, to, key, seen.end);
    }
    ++part;
    thread.end_group();
  };
  HeadRows<Z, T, Z::kQueries>(thread, a, x.q, b, nullptr, a.in_heads, a.key_size)
      .load(thread, of_queries, first, queries);
  HeadRows<Z, T, Z::kQueries>(thread, a, x.dout, b, nullptr, a.out_heads, a.value_size)
      .load(thread, of_dout, first, queries);
  ring.begin(thread, load);

  RowStats stats[kOwn][kStrips];
  MH_FOR (o, kOwn)
    MH_FOR (strip, kStrips)
      if (own + o < a.in_heads)
        stats[o][strip].read(thread, x.query_stats + (b * a.in_heads + own + o) * queries, first + 16 * strip + g,
                             queries);
  MixMatrix<T, Z::kMixed> matrices[Sizes::kUnits];
  const auto query_of = [&](int u) { return (thread.warp() + u * Z::kWarps) * Z::kQueriesAtOnce; };
  MH_FOR (u, Sizes::kUnits) {
    const auto of = [&](int i) {
      return a.matrix + b * a.matrix_batch_stride + (i < queries ? i : queries - 1) * a.matrix_query_stride;
    };
    matrices[u].read(thread, of(first + query_of(u)), of(first + query_of(u) + 1), a.in_heads, a.out_heads, a.out_heads,
                     1);
  }

  Sum sums[kOwn][kStrips][kSize / 8];
  const bool simple = is_simple(a);
  MH_ROLLED
  for (int key = seen.first; key < seen.end; key += kKeys) {
    by_case(simple && all_see(a, seen.end, first, Z::kQueries, key, kKeys), [&](auto usual) {
      constexpr bool kUsual = decltype(usual)::value;
      ring.await(thread, load);
      MH_FOR (o, kOwn) {
        const int i = own + o;
        if (i >= a.out_heads) break;
        multiply_strips<kSize, kStrips, kKeys>(thread, of_dout + i * Z::kQueries * kStride,
                                               ring.place() + i * kKeys * kStride,
                                               [&](int strip, Sum(&dp)[Sizes::kKeys / 8]) {
                                                 if (!kUsual && a.has_dropout() && !a.dropout_before_mixing)
                                                   drop(a, b, i, first + 16 * strip + g, key + 2 * t, dp);
                                                 tile.template put<T>(thread, i, strip, dp);
                                               });
      }
      ring.end();
      ring.await(thread, load);
      mix_queries<T, T, true>(thread, tile, query_of, a.out_heads, a.in_heads, matrices);
      thread.barrier();
      MH_FOR (o, kOwn) {
        const int j = own + o;
        if (j >= a.in_heads) break;
        const T* const of_keys = ring.place() + j * kKeys * kStride;
        const auto drops = [&](int strip, int column, Sum(&dp)[2]) {
          drop(a, b, j, first + 16 * strip + g, key + column + 2 * t, dp);
        };
        multiply_strips<kSize, kStrips, kKeys>(
            thread, of_queries + j * Z::kQueries * kStride, of_keys, [&](int strip, Sum(&p)[Sizes::kKeys / 8]) {
              Sum slopes[Sizes::kKeys / 8];
              to_slopes<kUsual>(thread, a, first + 16 * strip, key, seen.end, stats[o][strip], p, slopes);
              if (!kUsual && a.has_dropout() && a.dropout_before_mixing)
                to_logit_gradients<T, true>(thread, tile, j, strip, stats[o][strip], slopes, drops);
              else to_logit_gradients<T, false>(thread, tile, j, strip, stats[o][strip], slopes, drops);
            });
        thread.warp_barrier();
        accumulate<kSize, T, false>(thread, sums[o], tile, j, of_keys, DropsNone{});
      }
      ring.end();
    });
  }
  thread.template wait<0>();
  thread.barrier();
  MH_FOR (o, kOwn) {
    const int j = own + o;
    if (j >= a.in_heads) break;
    MH_FOR (strip, kStrips)
      store_rows<kSize, kStride>(thread, of_queries + thread.warp() * 16 * kStride, sums[o][strip], {1, 1},
                                 row_of(x.dq, b, j, 0), x.dq.row_stride, first + 16 * strip, queries, a.key_size,
                                 a.aligned);
  }
}

template <class Z, class T>
struct RowMixKeyGradientTiles {
  static constexpr int kKeys = whole_strips(2048 / (Z::kOwn * Z::kSize), 32);  // keys of a block
  using Tile = MixTile<16, kKeys>;
  static constexpr int kUnits = 16 / Z::kQueriesAtOnce / Z::kWarps;
  static constexpr int slot(const AttentionParams& a) { return (a.in_heads + a.out_heads) * 16 * Z::kStride; }
  static constexpr RowMixPlan plan(const AttentionParams& a, int limit) {
    return {(a.in_heads + a.out_heads) * kKeys * Z::kStride * 2, slot(a) * 2, 2 * Tile::template bytes<Z::kMixed>(a),
            limit};
  }
};

// Computes sums (strips of keys, 16, kSize) += a head of a tile (16 queries, keys), transposed · rows (16, kSize), like
// accumulate().
template <int kSize, class T, bool kDrops, class Tile, class Thread, class Drops>
MH_DEVICE void accumulate_turned(const Thread& thread, Sum (&sums)[Tile::kKeys / 16][kSize / 8], const Tile& tile,
                                 int head, const T* rows, const Drops& drops) {
  constexpr int kStride = kSize + kPad;
  if constexpr (kDrops) {
    MH_FOR (c, Tile::kKeys / 16) {
      Sum numbers[2];
      tile.template get<T>(thread, head, 0, 16 * c, numbers);
      drops(0, 16 * c, numbers);
      Left<T> left;
      round_to(thread, left, numbers[0], numbers[1]);
      thread.warp_barrier();
      T* const to = tile.template at<T>(head, 0, 16 * c + thread.lane() % 4 * 2) + thread.lane() / 4 * Tile::kStride;
      MH_FOR (i, 4) *reinterpret_cast<uint32_t*>(to + i % 2 * 8 * Tile::kStride + i / 2 * 8) = left.x[i];
    }
    thread.warp_barrier();
  }
  Right<T> right[kSize / 8];
  MH_FOR (n, kSize / 16) {
    Right<T> both[2];
    load(thread, both, rows + n * 16, kStride);
    right[2 * n] = both[0], right[2 * n + 1] = both[1];
  }
  MH_FOR (strip, Tile::kKeys / 16) {
    Left<T> left;
    load_left_turned(thread, left, tile.template at<T>(head, 0, 16 * strip), Tile::kStride);
    MH_FOR (n, kSize / 8) multiply(thread, sums[strip][n], left, right[n]);
  }
}

// Writes x.dk and x.dv for each head of queries and of the result; if each key/value head is read once (`joined`), to
// that head. Blocks: (order.blocks()). Padding keys get zeros.
template <class Z, class T, class Thread>
MH_DEVICE void row_mix_key_gradient(const Thread& thread, const AttentionParams& a, const RowMixPlan& plan,
                                    const BlockOrder& order, const KernelTensors<T>& x, void* memory) {
  using Sizes = RowMixKeyGradientTiles<Z, T>;
  using Tile = typename Sizes::Tile;
  using Probability = typename Z::Probability;
  constexpr int kSize = Z::kSize, kStride = Z::kStride, kOwn = Z::kOwn, kKeys = Sizes::kKeys;
  const BlockOrder::Place place = order.place(thread, false);
  const int64_t b = place.row;
  const int keys = static_cast<int>(a.keys), first = place.tile * kKeys, g = thread.lane() / 4, t = thread.lane() % 4,
            own = thread.warp() * kOwn, queries = static_cast<int>(a.queries);
  const int real = a.key_lengths != nullptr && a.key_lengths[b] < keys ? static_cast<int>(a.key_lengths[b]) : keys;
  const KeyRange seeing = queries_seeing(a, b, first, first + kKeys < keys ? first + kKeys : keys);

  auto* const of_keys = static_cast<T*>(memory);
  T* const of_values = of_keys + a.in_heads * kKeys * kStride;
  Ring<T> ring{of_values + a.out_heads * kKeys * kStride, plan.slots, Sizes::slot(a)};
  auto* const of_tiles = reinterpret_cast<uint16_t*>(ring.memory + ring.slots * ring.size);
  const Tile probabilities = Tile::template in<Z::kMixed>(thread, a, of_tiles),
             gradients = Tile::template in<Z::kMixed>(thread, a, of_tiles + Tile::template bytes<Z::kMixed>(a) / 2);
  const HeadRows<Z, T, 16> rows_of_queries(thread, a, x.q, b, nullptr, a.in_heads, a.key_size),
      rows_of_dout(thread, a, x.dout, b, nullptr, a.out_heads, a.value_size);
  int next = seeing.first;
  const auto load = [&](T* to) {
    if (next < seeing.end) {
      rows_of_queries.load(thread, to, next, seeing.end);
      rows_of_dout.load(thread, to + a.in_heads * 16 * kStride, next, seeing.end);
    }
    next += 16;
    thread.end_group();
  };
  HeadRows<Z, T, kKeys>(thread, a, x.k, b, a.key_heads, a.in_heads, a.key_size).load(thread, of_keys, first, keys);
  HeadRows<Z, T, kKeys>(thread, a, x.v, b, a.value_heads, a.out_heads, a.value_size)
      .load(thread, of_values, first, keys);
  ring.begin(thread, load);

  MixMatrix<Probability, Z::kMixed> of_probabilities[Sizes::kUnits];
  MixMatrix<T, Z::kMixed> of_gradients[Sizes::kUnits];
  const auto query_of = [&](int u) { return (thread.warp() + u * Z::kWarps) * Z::kQueriesAtOnce; };
  const auto read_matrices = [&](int query) {
    MH_FOR (u, Sizes::kUnits) {
      const auto of = [&](int i) {
        return a.matrix + b * a.matrix_batch_stride + (i < queries ? i : queries - 1) * a.matrix_query_stride;
      };
      const float *const one = of(query + query_of(u)), *const two = of(query + query_of(u) + 1);
      of_probabilities[u].read(thread, one, two, a.out_heads, a.in_heads, 1, a.out_heads);
      of_gradients[u].read(thread, one, two, a.in_heads, a.out_heads, a.out_heads, 1);
    }
  };
  read_matrices(seeing.first);

  Sum sums_k[kOwn][kKeys / 16][kSize / 8], sums_v[kOwn][kKeys / 16][kSize / 8];
  const bool simple = is_simple(a);
  MH_ROLLED
  for (int query = seeing.first; query < seeing.end; query += 16) {
    by_case(simple && all_see(a, real, query, 16, first, kKeys), [&](auto usual) {
      constexpr bool kUsual = decltype(usual)::value;
      ring.await(thread, load);
      const T *const of_queries = ring.place(), *const of_dout = of_queries + a.in_heads * 16 * kStride;
      RowStats stats[kOwn];
      Sum slopes[kOwn][kKeys / 8];
      // Both products are issued before the exponentials, so that the tensor cores compute dP̄ meanwhile.
      MH_FOR (o, kOwn) {
        const int head = own + o;
        Sum p[kKeys / 8], dp[kKeys / 8];
        if (head < a.in_heads) {
          stats[o].read(thread, x.query_stats + (b * a.in_heads + head) * queries, query + g, queries);
          multiply_turned<kSize, kStride, kSize / 16>(thread, p, of_queries + head * 16 * kStride,
                                                      of_keys + head * kKeys * kStride);
        }
        if (head < a.out_heads)
          multiply_turned<kSize, kStride, kSize / 16>(thread, dp, of_dout + head * 16 * kStride,
                                                      of_values + head * kKeys * kStride);
        if (head < a.in_heads) {
          to_slopes<kUsual>(thread, a, query, first, real, stats[o], p, slopes[o]);
          if (!kUsual && a.has_dropout() && a.dropout_before_mixing) drop(a, b, head, query + g, first + 2 * t, p);
          probabilities.template put<Probability>(thread, head, 0, p);
        }
        if (head < a.out_heads) {
          if (!kUsual && a.has_dropout() && !a.dropout_before_mixing) drop(a, b, head, query + g, first + 2 * t, dp);
          gradients.template put<T>(thread, head, 0, dp);
        }
      }
      if (a.matrix_query_stride != 0) read_matrices(query);
      thread.barrier();
      mix_queries<Probability, T, true>(thread, probabilities, query_of, a.in_heads, a.out_heads, of_probabilities);
      mix_queries<T, T, true>(thread, gradients, query_of, a.out_heads, a.in_heads, of_gradients);
      thread.barrier();
      MH_FOR (o, kOwn) {
        const int head = own + o;
        const auto drops = [&](int, int column, Sum(&numbers)[2]) {
          drop(a, b, head, query + g, first + column + 2 * t, numbers);
        };
        if (head < a.out_heads) {
          if (!kUsual && a.has_dropout() && !a.dropout_before_mixing)
            accumulate_turned<kSize, T, true>(thread, sums_v[o], probabilities, head, of_dout + head * 16 * kStride,
                                              drops);
          else
            accumulate_turned<kSize, T, false>(thread, sums_v[o], probabilities, head, of_dout + head * 16 * kStride,
                                               drops);
        }
        if (head < a.in_heads) {
          if (!kUsual && a.has_dropout() && a.dropout_before_mixing)
            to_logit_gradients<T, true>(thread, gradients, head, 0, stats[o], slopes[o], drops);
          else to_logit_gradients<T, false>(thread, gradients, head, 0, stats[o], slopes[o], drops);
          thread.warp_barrier();
          accumulate_turned<kSize, T, false>(thread, sums_k[o], gradients, head, of_queries + head * 16 * kStride,
                                             DropsNone{});
        }
      }
      ring.end();
    });
  }
  thread.template wait<0>();
  thread.barrier();
  T* const through = of_keys + thread.warp() * 16 * kStride;
  MH_FOR (o, kOwn) {
    const int head = own + o;
    MH_FOR (strip, kKeys / 16) {
      if (head < a.in_heads)
        store_rows<kSize, kStride>(thread, through, sums_k[o][strip], {1, 1},
                                   row_of(x.dk, b, x.joined ? a.key_head(head) : head, 0), x.dk.row_stride,
                                   first + 16 * strip, keys, a.key_size, a.aligned);
      if (head < a.out_heads)
        store_rows<kSize, kStride>(thread, through, sums_v[o][strip], {1, 1},
                                   row_of(x.dv, b, x.joined ? a.value_head(head) : head, 0), x.dv.row_stride,
                                   first + 16 * strip, keys, a.value_size, a.aligned);
    }
  }
}

}  // namespace mh::kernels
