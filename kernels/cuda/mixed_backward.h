// The gradient of attention with mixed heads, in three kernels, each of which takes probabilities again. With
// dP̄_i = dO_i V_iᵀ: the first one sums G[j, i] = Σ_s P_j dP̄_i for each query, which is the gradient of its matrix; then
// dP_j = Σ_i m[j, i] dP̄_i, and with D_j = Σ_i m[j, i] G[j, i] the gradient of the logits is dS_j = P_j (dP_j - D_j).
// The second makes dQ, going through the keys; the third dK and dV, going through the queries. Nothing is added to in
// memory.
//
// The log-sum-exp is rounded, by 2^-24 of the largest logit: so probabilities are divided by their sum, which the first
// kernel takes, without which the gradients of large logits would not add up to zero.
#pragma once

#include "cuda/mixed_forward.h"

namespace mh::kernels {

template <class T, int kSize>
struct MixedSumsTiles {
  static constexpr int kStride = kSize + kPad, kOwn = sizeof(T) == 4 ? 2 : 4;
  static constexpr int kChunk = sizeof(T) == 4 ? 4 : 8;  // heads of the result whose sums are in registers
  static constexpr int of_result(const MixedCall& a) { return a.heads < kChunk ? a.heads : kChunk; }
  static constexpr int chunks(const MixedCall& a) { return (a.heads + kChunk - 1) / kChunk; }
  static constexpr MixedPlan plan(const MixedCall& a, int limit) {
    return mixed_plan<T>(a.in, kOwn, a.in + of_result(a), a.in > of_result(a) ? a.in : of_result(a), of_result(a),
                         kStride, limit);
  }
};

// g (batch, queries, in, heads): G, but for the inverse of the sums; sums (batch, in, queries): of the probabilities as
// they are taken from log_sums. Blocks: (tiles of 16 * strips queries, batch, plan.blocks * chunks).
template <class T, int kSize, class Thread>
MH_DEVICE void mixed_sums(const Thread& thread, const MixedCall& a, const MixedPlan& plan, const Rows<const T>& q,
                          const Rows<const T>& k, const Rows<const T>& v, const Rows<const T>& dout,
                          const float* log_sums, float* g, float* sums, void* memory) {
  using Z = MixedSumsTiles<T, kSize>;
  constexpr int kStride = Z::kStride, kOwn = Z::kOwn, kChunk = Z::kChunk;
  const int64_t b = thread.block_y();
  const int queries = static_cast<int>(a.queries);
  const MixedPlace at(thread, plan);
  const int first = (thread.blocks_x() - 1 - thread.block_x()) * at.rows;
  const MixedQueries own_rows(a, b, first + 16 * at.strip + at.g);
  const int of_block = thread.block_z() % plan.blocks * plan.groups * kOwn, own = of_block + at.group * kOwn;
  const int chunk = thread.block_z() / plan.blocks * kChunk,
            values = a.heads - chunk < kChunk ? a.heads - chunk : kChunk;
  const int keys = a.in - of_block < plan.groups * kOwn ? a.in - of_block : plan.groups * kOwn;
  const KeyRange seen = keys_seen(a, b, first, first + at.rows < queries ? first + at.rows : queries);
  const int tiles = seen.end > seen.first ? (seen.end - seen.first + 15) / 16 : 0;

  auto* of_queries = static_cast<T*>(memory);  // (in), and behind them (chunk) of dout: (rows, kStride) each
  T* given = of_queries + a.in * at.rows * kStride;
  const int most = Z::of_result(a), kept = a.in + most > plan.groups ? a.in + most : plan.groups;
  const Ring<T> ring{of_queries + kept * at.rows * kStride, plan.slots, (a.in > most ? a.in : most) * 16 * kStride};
  const Exchange<T> exchange{reinterpret_cast<Left<T>*>(ring.memory + ring.slots * ring.size) + at.strip * most * 32};
  const InTurn<T> coming{
      {k, a.key_heads, of_block, keys, a.key_size}, {v, a.value_heads, chunk, values, a.value_size}, seen, tiles};
  const auto load = [&](int step) { coming.template load<kSize>(thread, a, b, ring, step); };
  load_heads<kSize>(thread, of_queries, q, b, nullptr, of_block, keys, at.rows, first, queries, a.key_size, a.aligned);
  load_heads<kSize>(thread, given, dout, b, nullptr, chunk, values, at.rows, first, queries, a.value_size, a.aligned);
  for (int step = 0; step < ring.slots; ++step) load(step);

  float of_pair[kOwn][kChunk][2] = {}, of_head[kOwn][2] = {};
  for (int tile = 0; tile < tiles; ++tile) {
    const int key = seen.first + tile * 16;
    Sum p[kOwn][2];
    ring.await(thread);
    MH_FOR (o, kOwn) {
      if (own + o >= a.in) break;
      const int head = own + o - of_block;
      multiply_turned<kSize, kStride>(thread, p[o], of_queries + (head * at.rows + at.strip * 16) * kStride,
                                      ring.slot(2 * tile) + head * 16 * kStride);
      probabilities(thread, a, b, own + o, own_rows, key, seen.end, log_sums, p[o]);
      MH_FOR (e, 4) of_head[o][e / 2] += p[o][0].x[e] + p[o][1].x[e];
      if (a.dropout != nullptr && a.dropped_first) drop_tile(a, b, own + o, own_rows.row, key + 2 * at.t, p[o]);
    }
    thread.barrier();
    load(2 * tile + ring.slots);
    ring.await(thread);
    for (int i = at.group; i < values; i += plan.groups) {
      Sum d[2];
      multiply_turned<kSize, kStride>(thread, d, given + (i * at.rows + at.strip * 16) * kStride,
                                      ring.slot(2 * tile + 1) + i * 16 * kStride);
      if (a.dropout != nullptr && !a.dropped_first) drop_tile(a, b, chunk + i, own_rows.row, key + 2 * at.t, d);
      exchange.put(thread, i, d);
    }
    thread.barrier();
    load(2 * tile + 1 + ring.slots);
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
      const bool there = own + o < a.in && own_rows.row + 8 * r < queries && at.t == 0;
      const float sum = row_sum(thread, of_head[o][r]);
      if (there && chunk == 0) sums[(b * a.in + own + o) * a.queries + own_rows.row + 8 * r] = sum;
      float* to = g + ((b * a.queries + own_rows.clamped[r]) * a.in + own + o) * a.heads + chunk;
      MH_FOR (i, kChunk) {
        const float pair = row_sum(thread, of_pair[o][i][r]);
        if (there && i < values) to[i] = pair;
      }
    }
}

// g is divided by the sums, which become their inverses; d (batch, in, queries) = Σ_i m[j, i] G[j, i]. A thread for
// each query of each head; blocks: of any number of threads, enough for all.
template <class Thread>
MH_DEVICE void mixed_row_sums(const Thread& thread, const MixedCall& a, int64_t batch, float* g, float* sums,
                              float* d) {
  const int64_t i = static_cast<int64_t>(thread.block_x()) * thread.threads() + thread.index();
  if (i >= batch * a.in * a.queries) return;
  const int64_t t = i % a.queries, j = i / a.queries % a.in, b = i / a.queries / a.in;
  const float inverse = sums[i] > 0 ? 1 / sums[i] : 0;
  float* of_pair = g + ((b * a.queries + t) * a.in + j) * a.heads;
  const float* m = a.matrix + b * a.matrix_row + t * a.matrix_query + j * a.heads;
  float sum = 0;
  for (int64_t e = 0; e < a.heads; ++e) {
    of_pair[e] *= inverse;
    sum += m[e] * of_pair[e];
  }
  sums[i] = inverse, d[i] = sum;
}

template <class T, int kSize>
struct MixedQueryGradientTiles {
  static constexpr int kStride = kSize + kPad, kOwn = heads_of_warp<T>(kSize);
  static constexpr MixedPlan plan(const MixedCall& a, int limit) {
    return mixed_plan<T>(a.in, kOwn, a.in + a.heads, a.in > a.heads ? a.in : a.heads, a.heads, kStride, limit);
  }
};

// dq. inverses and d (batch, in, queries) of mixed_row_sums. Blocks as mixed_forward's.
template <class T, int kSize, class Thread>
MH_DEVICE void mixed_query_gradient(const Thread& thread, const MixedCall& a, const MixedPlan& plan,
                                    const Rows<const T>& q, const Rows<const T>& k, const Rows<const T>& v,
                                    const Rows<const T>& dout, const float* log_sums, const float* inverses,
                                    const float* d, const Rows<T>& dq, void* memory) {
  using Z = MixedQueryGradientTiles<T, kSize>;
  constexpr int kStride = Z::kStride, kOwn = Z::kOwn;
  const int64_t b = thread.block_y();
  const int queries = static_cast<int>(a.queries);
  const MixedPlace at(thread, plan);
  const int first = (thread.blocks_x() - 1 - thread.block_x()) * at.rows;
  const MixedQueries own_rows(a, b, first + 16 * at.strip + at.g);
  const int of_block = thread.block_z() * plan.groups * kOwn, own = of_block + at.group * kOwn;
  const int keys = a.in - of_block < plan.groups * kOwn ? a.in - of_block : plan.groups * kOwn;
  const KeyRange seen = keys_seen(a, b, first, first + at.rows < queries ? first + at.rows : queries);
  const int tiles = seen.end > seen.first ? (seen.end - seen.first + 15) / 16 : 0;

  auto* given = static_cast<T*>(memory);  // (heads), and behind them (keys) of q: (rows, kStride) each
  T* of_queries = given + a.heads * at.rows * kStride;
  const int both = a.in + a.heads, kept = both > plan.groups ? both : plan.groups;
  const Ring<T> ring{given + kept * at.rows * kStride, plan.slots, (a.in > a.heads ? a.in : a.heads) * 16 * kStride};
  const Exchange<T> exchange{reinterpret_cast<Left<T>*>(ring.memory + ring.slots * ring.size) +
                             at.strip * a.heads * 32};
  const InTurn<T> coming{
      {v, a.value_heads, 0, a.heads, a.value_size}, {k, a.key_heads, of_block, keys, a.key_size}, seen, tiles};
  const auto load = [&](int step) { coming.template load<kSize>(thread, a, b, ring, step); };
  load_heads<kSize>(thread, given, dout, b, nullptr, 0, a.heads, at.rows, first, queries, a.value_size, a.aligned);
  load_heads<kSize>(thread, of_queries, q, b, nullptr, of_block, keys, at.rows, first, queries, a.key_size, a.aligned);
  for (int step = 0; step < ring.slots; ++step) load(step);

  Sum sums[kOwn][kSize / 8];
  for (int tile = 0; tile < tiles; ++tile) {
    const int key = seen.first + tile * 16;
    ring.await(thread);
    for (int i = at.group; i < a.heads; i += plan.groups) {
      Sum x[2];
      multiply_turned<kSize, kStride>(thread, x, given + (i * at.rows + at.strip * 16) * kStride,
                                      ring.slot(2 * tile) + i * 16 * kStride);
      if (a.dropout != nullptr && !a.dropped_first) drop_tile(a, b, i, own_rows.row, key + 2 * at.t, x);
      exchange.put(thread, i, x);
    }
    thread.barrier();
    load(2 * tile + ring.slots);
    Sum dp[kOwn][2];
    mix(thread, dp, exchange, a.heads,
        [&](int i, int o, int, int x) { return own + o < a.in ? own_rows.matrix[x / 2][(own + o) * a.heads + i] : 0; });
    ring.await(thread);
    MH_FOR (o, kOwn) {
      if (own + o >= a.in) break;
      const T* of_keys = ring.slot(2 * tile + 1) + (own + o - of_block) * 16 * kStride;
      if (a.dropout != nullptr && a.dropped_first) drop_tile(a, b, own + o, own_rows.row, key + 2 * at.t, dp[o]);
      Sum p[2], slopes[2];
      multiply_turned<kSize, kStride>(thread, p,
                                      of_queries + ((own + o - of_block) * at.rows + at.strip * 16) * kStride, of_keys);
      probabilities(thread, a, b, own + o, own_rows, key, seen.end, log_sums, p, slopes);
      MH_FOR (e, 4) {
        const int64_t row = (b * a.in + own + o) * a.queries + own_rows.clamped[e / 2];
        const float inverse = inverses[row], of_row = d[row];
        MH_FOR (n, 2) slopes[n].x[e] *= inverse * (dp[o][n].x[e] - of_row);
      }
      multiply_add<kSize, kStride>(thread, sums[o], slopes, of_keys);
    }
    thread.barrier();
    load(2 * tile + 1 + ring.slots);
  }
  thread.template wait<0>();
  thread.barrier();
  const float factor[2] = {1, 1};
  MH_FOR (o, kOwn) {
    if (own + o >= a.in) break;
    store_rows<kSize, kStride>(thread, given + (at.group * at.rows + at.strip * 16) * kStride, sums[o], factor,
                               row_of(dq, b, own + o, 0), dq.position, first + 16 * at.strip, queries, a.key_size,
                               a.aligned);
  }
}

template <class T, int kSize, bool kOfKeys, bool kOfValues>
struct MixedKeyGradientTiles {
  static constexpr int kStride = kSize + kPad, kMost = kOfKeys && kOfValues ? 2 : 4;
  static constexpr int kFit = heads_of_warp<T>(kOfKeys && kOfValues ? 2 * kSize : kSize);
  static constexpr int kOwn = kFit < kMost ? kFit : kMost;
  using Probability = typename Exchanged<T>::Probability;
  static constexpr MixedPlan plan(const MixedCall& a, int limit) {
    const int most = a.in > a.heads ? a.in : a.heads;
    return mixed_plan<T>(most, kOwn, a.in + a.heads, a.in + a.heads, a.in + a.heads, kStride, limit);
  }
};
// Sums of both gradients do not fit into the registers of a warp: each has a pass of its own.
template <class T, int kSize>
constexpr bool kMixedApart = kSize * sizeof(T) > 512 || kSize > 128;

// dk, if kOfKeys: of each head of queries (in) what it gives to the keys that it reads; dv, if kOfValues: of each head
// of the result. Where each head is read once (`joined`) they go to the head that is read. Blocks: (tiles of 16 *
// strips keys, batch, plan.blocks). Keys that are not real get zeros.
template <class T, int kSize, bool kOfKeys, bool kOfValues, class Thread>
MH_DEVICE void mixed_key_gradient(const Thread& thread, const MixedCall& a, const MixedPlan& plan,
                                  const Rows<const T>& q, const Rows<const T>& k, const Rows<const T>& v,
                                  const Rows<const T>& dout, const float* log_sums, const float* inverses,
                                  const float* d, bool joined, const Rows<T>& dk, const Rows<T>& dv, void* memory) {
  using Z = MixedKeyGradientTiles<T, kSize, kOfKeys, kOfValues>;
  using Probability = typename Z::Probability;
  constexpr int kStride = Z::kStride, kOwn = Z::kOwn;
  const int64_t b = thread.block_y();
  const int keys = static_cast<int>(a.keys);
  const MixedPlace at(thread, plan);
  const int first = thread.block_x() * at.rows, row = first + 16 * at.strip + at.g;
  const int own = (thread.block_z() * plan.groups + at.group) * kOwn;
  const KeyRange seeing = queries_seeing(a, b, first, first + at.rows < keys ? first + at.rows : keys);
  const int real = a.key_lengths != nullptr && a.key_lengths[b] < keys ? static_cast<int>(a.key_lengths[b]) : keys;
  const int tiles = seeing.end > seeing.first ? (seeing.end - seeing.first + 15) / 16 : 0;

  auto* of_keys = static_cast<T*>(memory);  // (in), and behind them (heads) of v: (rows, kStride) each
  T* of_values = of_keys + a.in * at.rows * kStride;
  const int both = a.in + a.heads, kept = both > plan.groups ? both : plan.groups;
  const Ring<T> ring{of_keys + kept * at.rows * kStride, plan.slots, both * 16 * kStride};
  auto* exchanged = reinterpret_cast<Left<T>*>(ring.memory + ring.slots * ring.size) + at.strip * both * 32;
  const Exchange<Probability> probability{reinterpret_cast<Left<Probability>*>(exchanged)};
  const Exchange<T> gradient{exchanged + a.in * 32};
  const auto load = [&](int tile) {  // queries (in), and behind them dout (heads)
    const int from = seeing.first + tile * 16;
    if (tile < tiles) {
      load_heads<kSize>(thread, ring.slot(tile), q, b, nullptr, 0, a.in, 16, from, seeing.end, a.key_size, a.aligned);
      load_heads<kSize>(thread, ring.slot(tile) + a.in * 16 * kStride, dout, b, nullptr, 0, a.heads, 16, from,
                        seeing.end, a.value_size, a.aligned);
    }
    thread.end_group();
  };
  load_heads<kSize>(thread, of_keys, k, b, a.key_heads, 0, a.in, at.rows, first, keys, a.key_size, a.aligned);
  load_heads<kSize>(thread, of_values, v, b, a.value_heads, 0, a.heads, at.rows, first, keys, a.value_size, a.aligned);
  for (int tile = 0; tile < ring.slots; ++tile) load(tile);

  Sum sums_k[kOfKeys ? kOwn : 1][kOfKeys ? kSize / 8 : 2], sums_v[kOfValues ? kOwn : 1][kOfValues ? kSize / 8 : 2];
  for (int tile = 0; tile < tiles; ++tile) {
    const int query = seeing.first + tile * 16 + 2 * at.t;  // of columns 0 and 1; 8 more of the others
    const T *of_queries = ring.slot(tile), *given = of_queries + a.in * 16 * kStride;
    // Of the four columns.
    const auto query_of = [&](int n, int e) { return query + 8 * n + e; };
    const auto clamped = [&](int n, int e) { return query_of(n, e) < seeing.end ? query_of(n, e) : seeing.end - 1; };
    const auto drop = [&](int head, Sum(&x)[2]) {
      MH_FOR (n, 2)
        MH_FOR (e, 4) x[n].x[e] *= dropped(a, b, head, query_of(n, e % 2), row + e / 2 * 8);
    };
    // P_jᵀ of head j; slopes: times the derivative of the logits.
    const auto probabilities_of = [&](int j, Sum(&p)[2], Sum(&slopes)[2]) {
      multiply_turned<kSize, kStride>(thread, p, of_keys + (j * at.rows + at.strip * 16) * kStride,
                                      of_queries + j * 16 * kStride);
      MH_FOR (n, 2)
        MH_FOR (e, 2) {
          const int64_t of_row = (b * a.in + j) * a.queries + clamped(n, e);
          const float log_sum = log_sums[of_row] * kLog2E, inverse = inverses[of_row];
          MH_FOR (r, 2) {
            float& x = p[n].x[2 * r + e];
            const float product = x;
            x = query_of(n, e) < seeing.end && sees(a, real, query_of(n, e), row + 8 * r)
                    ? thread.exp2(logarithm(thread, a, product) - log_sum) * inverse
                    : 0;
            slopes[n].x[2 * r + e] = x > 0 ? x * slope(thread, a, product) : 0;
          }
        }
    };
    ring.await(thread);
    Sum slopes[kOwn][2];
    if constexpr (kOfKeys) {
      MH_FOR (o, kOwn) {
        if (own + o >= a.in) break;
        Sum p[2];
        probabilities_of(own + o, p, slopes[o]);
      }
      for (int i = at.group; i < a.heads; i += plan.groups) {
        Sum x[2];
        multiply_turned<kSize, kStride>(thread, x, of_values + (i * at.rows + at.strip * 16) * kStride,
                                        given + i * 16 * kStride);
        if (a.dropout != nullptr && !a.dropped_first) drop(i, x);
        gradient.put(thread, i, x);
      }
    }
    if constexpr (kOfValues)
      for (int j = at.group; j < a.in; j += plan.groups) {
        Sum p[2], unused[2];
        probabilities_of(j, p, unused);
        if (a.dropout != nullptr && a.dropped_first) drop(j, p);
        probability.put(thread, j, p);
      }
    thread.barrier();
    // Of the matrices of the four columns.
    const auto matrix_of = [&](int n, int e) { return a.matrix + b * a.matrix_row + clamped(n, e) * a.matrix_query; };
    if constexpr (kOfValues) {
      Sum mixed[kOwn][2];
      mix(thread, mixed, probability, a.in, [&](int j, int o, int n, int x) {
        return own + o < a.heads ? matrix_of(n, x % 2)[j * a.heads + own + o] : 0;
      });
      MH_FOR (o, kOwn) {
        if (own + o >= a.heads) break;
        if (a.dropout != nullptr && !a.dropped_first) drop(own + o, mixed[o]);
        multiply_add<kSize, kStride>(thread, sums_v[o], mixed[o], given + (own + o) * 16 * kStride);
      }
    }
    if constexpr (kOfKeys) {
      Sum dp[kOwn][2];
      mix(thread, dp, gradient, a.heads, [&](int i, int o, int n, int x) {
        return own + o < a.in ? matrix_of(n, x % 2)[(own + o) * a.heads + i] : 0;
      });
      MH_FOR (o, kOwn) {
        if (own + o >= a.in) break;
        if (a.dropout != nullptr && a.dropped_first) drop(own + o, dp[o]);
        MH_FOR (n, 2)
          MH_FOR (e, 4) slopes[o][n].x[e] *= dp[o][n].x[e] - d[(b * a.in + own + o) * a.queries + clamped(n, e % 2)];
        multiply_add<kSize, kStride>(thread, sums_k[o], slopes[o], of_queries + (own + o) * 16 * kStride);
      }
    }
    thread.barrier();
    load(tile + ring.slots);
  }
  thread.template wait<0>();
  thread.barrier();
  const float factor[2] = {1, 1};
  T* through = of_keys + (at.group * at.rows + at.strip * 16) * kStride;
  MH_FOR (o, kOwn) {
    if constexpr (kOfKeys) {
      if (own + o < a.in)
        store_rows<kSize, kStride>(thread, through, sums_k[o], factor,
                                   row_of(dk, b, joined ? a.key_head(own + o) : own + o, 0), dk.position,
                                   first + 16 * at.strip, keys, a.key_size, a.aligned);
    }
    if constexpr (kOfValues) {
      if (own + o < a.heads)
        store_rows<kSize, kStride>(thread, through, sums_v[o], factor,
                                   row_of(dv, b, joined ? a.value_head(own + o) : own + o, 0), dv.position,
                                   first + 16 * at.strip, keys, a.value_size, a.aligned);
    }
  }
}

}  // namespace mh::kernels
