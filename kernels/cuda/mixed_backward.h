// The gradient of attention with mixed heads, in three kernels, each of which takes probabilities again. With
// dP̄_i = dO_i V_iᵀ: the first one sums G[j, i] = Σ_s P_j dP̄_i for each query, which is the gradient of its matrix; then
// dP_j = Σ_i m[j, i] dP̄_i, and with D_j = Σ_i m[j, i] G[j, i] the gradient of the logits is dS_j = P_j (dP_j - D_j).
// The second makes dQ, going through the keys; the third dK and dV, going through the queries. Nothing is added to in
// memory.
//
// The log-sum-exp is rounded, by 2^-24 of the largest logit: so probabilities are divided by their sum, which the first
// kernel takes, without which the gradients of large logits would not add up to zero.
#pragma once

#include "cuda/mixed.h"

namespace mh::kernels {

template <class T, int kSize>
struct MixedSumsTiles {
  static constexpr int kStride = kSize + kPad, kOwn = sizeof(T) == 4 ? 2 : 4;
  static constexpr int kChunk = sizeof(T) == 4 ? 4 : 8;  // heads of the result whose sums are in registers
  static constexpr int of_result(const MixedCall& a) { return a.heads < kChunk ? a.heads : kChunk; }
  static constexpr int chunks(const MixedCall& a) { return (a.heads + kChunk - 1) / kChunk; }
  static constexpr MixedPlan plan(const MixedCall& a, int limit) {
    const int most = of_result(a);
    return mixed_plan<T>({a.in, kOwn, a.in + most, a.in > most ? a.in : most, 0, most}, kStride, limit);
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
  const int first = (thread.blocks_x() - 1 - thread.block_x()) * at.rows, of_strip = at.strip * 16 * kStride;
  const MixedQueries own_rows(a, b, first + 16 * at.strip + at.g);
  const int of_block = thread.block_z() % plan.blocks * plan.groups * kOwn, own = of_block + at.group * kOwn;
  const int of_next = of_block + plan.groups * kOwn, end = of_next < a.in ? of_next : a.in;
  const int chunk = thread.block_z() / plan.blocks * kChunk,
            values = a.heads - chunk < kChunk ? a.heads - chunk : kChunk;
  const KeyRange seen = keys_seen(a, b, first, first + at.rows < queries ? first + at.rows : queries);

  auto* const rows = static_cast<T*>(memory);  // of q, and behind them of dout
  T* const of_chunk = rows + a.in * at.rows * kStride;
  const MixedMemory<T> parts_of(plan, rows, kStride);
  const Ring<T> ring = parts_of.ring;
  const Exchange<T> exchange{parts_of.template fragments<T>(at.strip * Z::of_result(a))};
  const Meeting<T, kSize> logits{{k, a.key_heads}, {q, nullptr}, of_block, end, a.key_size, rows};
  const Meeting<T, kSize> given{{v, a.value_heads}, {dout, nullptr}, chunk, chunk + values, a.value_size, of_chunk};
  const Parts<T, kSize, 2> parts(plan, {logits, given}, first, queries, seen);
  const auto load = [&](int part) { parts.load(thread, a, plan, b, part, ring.place(part)); };
  if (plan.kept > 0) {
    logits.load_staying(thread, a, plan, b, rows, of_block, end - of_block, first, queries);
    given.load_staying(thread, a, plan, b, of_chunk, chunk, values, first, queries);
  }
  for (int part = 0; part < ring.slots; ++part) load(part);
  int step = 0;

  float of_pair[kOwn][kChunk][2] = {}, of_head[kOwn][2] = {};
  for (int key = seen.first; key < seen.end; key += 16) {
    Sum p[kOwn][2];
    each_part(thread, ring, step, plan.heads, of_block, end, load, [&](int begin, int part_end, const T* place) {
      MH_FOR (o, kOwn) {
        if (own + o < begin || own + o >= part_end) continue;
        multiply_turned<kSize, kStride>(thread, p[o], logits.stays(plan, place, begin, own + o) + of_strip,
                                        logits.comes(place, begin, own + o));
        probabilities(thread, a, b, own + o, own_rows, key, seen.end, log_sums, p[o]);
        MH_FOR (e, 4) of_head[o][e / 2] += p[o][0].x[e] + p[o][1].x[e];
      }
    });
    if (a.dropout != nullptr && a.dropped_first) drop_tiles(a, b, own, end, own_rows.row, key + 2 * at.t, p);
    each_part(thread, ring, step, plan.heads, chunk, chunk + values, load,
              [&](int begin, int part_end, const T* place) {
                for (int i = begin + at.group; i < part_end; i += plan.groups) {
                  Sum d[2];
                  multiply_turned<kSize, kStride>(thread, d, given.stays(plan, place, begin, i) + of_strip,
                                                  given.comes(place, begin, i));
                  if (a.dropout != nullptr && !a.dropped_first) drop_tile(a, b, i, own_rows.row, key + 2 * at.t, d);
                  exchange.put(thread, i - chunk, d);
                }
              });
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
    return mixed_plan<T>({a.in, kOwn, a.in + a.heads, a.in > a.heads ? a.in : a.heads, 0, a.heads}, kStride, limit);
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
  const int first = (thread.blocks_x() - 1 - thread.block_x()) * at.rows, of_strip = at.strip * 16 * kStride;
  const MixedQueries own_rows(a, b, first + 16 * at.strip + at.g);
  const int of_block = thread.block_z() * plan.groups * kOwn, own = of_block + at.group * kOwn;
  const int of_next = of_block + plan.groups * kOwn, end = of_next < a.in ? of_next : a.in;
  const KeyRange seen = keys_seen(a, b, first, first + at.rows < queries ? first + at.rows : queries);

  auto* const rows = static_cast<T*>(memory);  // of dout, and behind them of q
  T* const of_queries = rows + a.heads * at.rows * kStride;
  const MixedMemory<T> parts_of(plan, rows, kStride);
  const Ring<T> ring = parts_of.ring;
  const Exchange<T> exchange{parts_of.template fragments<T>(at.strip * a.heads)};
  const Meeting<T, kSize> given{{v, a.value_heads}, {dout, nullptr}, 0, a.heads, a.value_size, rows};
  const Meeting<T, kSize> logits{{k, a.key_heads}, {q, nullptr}, of_block, end, a.key_size, of_queries};
  const Parts<T, kSize, 2> parts(plan, {given, logits}, first, queries, seen);
  const auto load = [&](int part) { parts.load(thread, a, plan, b, part, ring.place(part)); };
  if (plan.kept > 0) {
    given.load_staying(thread, a, plan, b, rows, 0, a.heads, first, queries);
    logits.load_staying(thread, a, plan, b, of_queries, of_block, end - of_block, first, queries);
  }
  for (int part = 0; part < ring.slots; ++part) load(part);
  int step = 0;

  Sum sums[kOwn][kSize / 8];
  for (int key = seen.first; key < seen.end; key += 16) {
    each_part(thread, ring, step, plan.heads, 0, a.heads, load, [&](int begin, int part_end, const T* place) {
      for (int i = begin + at.group; i < part_end; i += plan.groups) {
        Sum x[2];
        multiply_turned<kSize, kStride>(thread, x, given.stays(plan, place, begin, i) + of_strip,
                                        given.comes(place, begin, i));
        if (a.dropout != nullptr && !a.dropped_first) drop_tile(a, b, i, own_rows.row, key + 2 * at.t, x);
        exchange.put(thread, i, x);
      }
    });
    Sum dp[kOwn][2];
    mix(thread, dp, exchange, a.heads,
        [&](int i, int o, int, int x) { return own + o < a.in ? own_rows.matrix[x / 2][(own + o) * a.heads + i] : 0; });
    if (a.dropout != nullptr && a.dropped_first) drop_tiles(a, b, own, end, own_rows.row, key + 2 * at.t, dp);
    each_part(thread, ring, step, plan.heads, of_block, end, load, [&](int begin, int part_end, const T* place) {
      MH_FOR (o, kOwn) {
        if (own + o < begin || own + o >= part_end) continue;
        const T* of_keys = logits.comes(place, begin, own + o);
        Sum p[2], slopes[2];
        multiply_turned<kSize, kStride>(thread, p, logits.stays(plan, place, begin, own + o) + of_strip, of_keys);
        probabilities(thread, a, b, own + o, own_rows, key, seen.end, log_sums, p, slopes);
        MH_FOR (e, 4) {
          const int64_t row = (b * a.in + own + o) * a.queries + own_rows.clamped[e / 2];
          const float inverse = inverses[row], of_row = d[row];
          MH_FOR (n, 2) slopes[n].x[e] *= inverse * (dp[o][n].x[e] - of_row);
        }
        multiply_add<kSize, kStride>(thread, sums[o], slopes, of_keys);
      }
    });
  }
  store_in_turns(thread, plan, at, [&](int turn) {
    const float factor[2] = {1, 1};
    MH_FOR (o, kOwn) {
      if (own + o >= a.in) break;
      store_rows<kSize, kStride>(thread, rows + (turn * at.rows + at.strip * 16) * kStride, sums[o], factor,
                                 row_of(dq, b, own + o, 0), dq.position, first + 16 * at.strip, queries, a.key_size,
                                 a.aligned);
    }
  });
}

}  // namespace mh::kernels
