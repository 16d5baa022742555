// The gradient of keys and values of attention with mixed heads, of the three kernels that mixed_backward.h tells of
// the last: a block holds 16 keys a strip and goes through the queries, so that tiles of probabilities are transposed.
#pragma once

#include "cuda/mixed.h"

namespace mh::kernels {

template <class T, int kSize, bool kOfKeys, bool kOfValues>
struct MixedKeyGradientTiles {
  static constexpr int kStride = kSize + kPad, kMost = kOfKeys && kOfValues ? 2 : 4;
  static constexpr int kFit = heads_of_warp<T>(kOfKeys && kOfValues ? 2 * kSize : kSize);
  static constexpr int kOwn = kFit < kMost ? kFit : kMost;
  using Probability = typename Exchanged<T>::Probability;
  static constexpr int exchanged(const MixedCall& a) { return (kOfKeys ? a.heads : 0) + (kOfValues ? a.in : 0); }
  static constexpr MixedPlan plan(const MixedCall& a, int limit) {
    const int most = a.in > a.heads ? a.in : a.heads, both = a.in + a.heads;
    return mixed_plan<T>({most, kOwn, both, most, both, exchanged(a)}, kStride, limit);
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
  const int first = thread.block_x() * at.rows, row = first + 16 * at.strip + at.g, of_strip = at.strip * 16 * kStride;
  // Heads of this block, of the queries and of the result; and of this warp.
  const int of_block = thread.block_z() * plan.groups * kOwn, own = of_block + at.group * kOwn;
  const int of_next = of_block + plan.groups * kOwn;
  const int in_end = of_next < a.in ? of_next : a.in, end = of_next < a.heads ? of_next : a.heads;
  const KeyRange seeing = queries_seeing(a, b, first, first + at.rows < keys ? first + at.rows : keys);
  const int real = a.key_lengths != nullptr && a.key_lengths[b] < keys ? static_cast<int>(a.key_lengths[b]) : keys;

  auto* const rows = static_cast<T*>(memory);  // of k, and behind them of v
  T* const of_values = rows + a.in * at.rows * kStride;
  const MixedMemory<T> parts_of(plan, rows, kStride);
  const Ring<T> ring = parts_of.ring;
  const int fragments = at.strip * Z::exchanged(a);
  const Exchange<Probability> probability{parts_of.template fragments<Probability>(fragments)};
  const Exchange<T> gradient{parts_of.template fragments<T>(fragments + (kOfValues ? a.in : 0))};
  const Meeting<T, kSize> logits{{q, nullptr}, {k, a.key_heads}, 0, a.in, a.key_size, rows};
  const Meeting<T, kSize> given{{dout, nullptr}, {v, a.value_heads}, 0, a.heads, a.value_size, of_values};
  // What is worked at, in its order: gradients and probabilities that are exchanged, values and keys of own heads.
  const auto of_heads = [](Meeting<T, kSize> x, int begin, int part_end, bool asked, bool with_staying) {
    x.first = begin, x.end = asked && part_end > begin ? part_end : begin;
    if (!with_staying) x.staying.rows.data = nullptr;
    return x;
  };
  const Parts<T, kSize, 4> parts(
      plan,
      {of_heads(given, 0, a.heads, kOfKeys, true), of_heads(logits, 0, a.in, kOfValues, true),
       of_heads(given, of_block, end, kOfValues, false), of_heads(logits, of_block, in_end, kOfKeys, true)},
      first, keys, seeing);
  const auto load = [&](int part) {
    T* const place = ring.place(part);
    if (!plan.whole) return parts.load(thread, a, plan, b, part, place);
    const int from = seeing.first + part * 16;
    if (from < seeing.end) {
      logits.load_coming(thread, a, b, place, 0, a.in, from, seeing.end);
      given.load_coming(thread, a, b, place + a.in * 16 * kStride, 0, a.heads, from, seeing.end);
    }
    thread.end_group();
  };
  if (plan.kept > 0) {
    logits.load_staying(thread, a, plan, b, rows, 0, a.in, first, keys);
    given.load_staying(thread, a, plan, b, of_values, 0, a.heads, first, keys);
  }
  for (int part = 0; part < ring.slots; ++part) load(part);
  int step = 0;

  Sum sums_k[kOfKeys ? kOwn : 1][kOfKeys ? kSize / 8 : 2], sums_v[kOfValues ? kOwn : 1][kOfValues ? kSize / 8 : 2];
  for (int tile = seeing.first; tile < seeing.end; tile += 16) {
    const int query = tile + 2 * at.t;  // of columns 0 and 1; 8 more of the others
    // Of the four columns.
    const auto query_of = [&](int n, int e) { return query + 8 * n + e; };
    const auto clamped = [&](int n, int e) { return query_of(n, e) < seeing.end ? query_of(n, e) : seeing.end - 1; };
    const auto matrix_of = [&](int n, int e) { return a.matrix + b * a.matrix_row + clamped(n, e) * a.matrix_query; };
    const auto drop = [&](int head, Sum(&x)[2]) {
      MH_FOR (n, 2)
        MH_FOR (e, 4) x[n].x[e] *= dropped(a, b, head, query_of(n, e % 2), row + e / 2 * 8);
    };
    // P_jᵀ of head j; slopes: times the derivative of the logits.
    const auto probabilities_of = [&](int j, const T* stays, const T* comes, Sum(&p)[2], Sum(&slopes)[2]) {
      multiply_turned<kSize, kStride>(thread, p, stays + of_strip, comes);
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
    // Where a place has all of a tile it is taken when work on the tile begins, and is free again when it ends.
    if (plan.whole) ring.await(thread);
    const auto each = [&](int begin, int part_end, int offset, bool last, const auto& work) {
      if (!plan.whole) return each_part(thread, ring, step, plan.heads, begin, part_end, load, work);
      work(0, part_end, ring.place(step) + offset);
      if (last) thread.barrier();
    };
    const int of_given = a.in * 16 * kStride;
    if constexpr (kOfKeys)
      each(0, a.heads, of_given, !kOfValues, [&](int begin, int part_end, const T* place) {
        for (int i = begin + at.group; i < part_end; i += plan.groups) {
          Sum x[2];
          multiply_turned<kSize, kStride>(thread, x, given.stays(plan, place, begin, i) + of_strip,
                                          given.comes(place, begin, i));
          if (a.dropout != nullptr && !a.dropped_first) drop(i, x);
          gradient.put(thread, i, x);
        }
      });
    if constexpr (kOfValues) {
      each(0, a.in, 0, true, [&](int begin, int part_end, const T* place) {
        for (int j = begin + at.group; j < part_end; j += plan.groups) {
          Sum p[2], unused[2];
          probabilities_of(j, logits.stays(plan, place, begin, j), logits.comes(place, begin, j), p, unused);
          if (a.dropout != nullptr && a.dropped_first) drop(j, p);
          probability.put(thread, j, p);
        }
      });
      Sum mixed[kOwn][2];
      mix(thread, mixed, probability, a.in, [&](int j, int o, int n, int x) {
        return own + o < a.heads ? matrix_of(n, x % 2)[j * a.heads + own + o] : 0;
      });
      if (a.dropout != nullptr && !a.dropped_first) {
        MH_FOR (o, kOwn)
          if (own + o < end) drop(own + o, mixed[o]);
      }
      each(of_block, end, of_given, false, [&](int begin, int part_end, const T* place) {
        MH_FOR (o, kOwn) {
          if (own + o < begin || own + o >= part_end) continue;
          multiply_add<kSize, kStride>(thread, sums_v[o], mixed[o], given.comes(place, begin, own + o));
        }
      });
    }
    if constexpr (kOfKeys) {
      Sum dp[kOwn][2];
      mix(thread, dp, gradient, a.heads, [&](int i, int o, int n, int x) {
        return own + o < a.in ? matrix_of(n, x % 2)[(own + o) * a.heads + i] : 0;
      });
      if (a.dropout != nullptr && a.dropped_first) {
        MH_FOR (o, kOwn)
          if (own + o < in_end) drop(own + o, dp[o]);
      }
      each(of_block, in_end, 0, false, [&](int begin, int part_end, const T* place) {
        MH_FOR (o, kOwn) {
          if (own + o < begin || own + o >= part_end) continue;
          const int j = own + o;
          const T* of_queries = logits.comes(place, begin, j);
          Sum p[2], slopes[2];
          probabilities_of(j, logits.stays(plan, place, begin, j), of_queries, p, slopes);
          MH_FOR (n, 2)
            MH_FOR (e, 4) slopes[n].x[e] *= dp[o][n].x[e] - d[(b * a.in + j) * a.queries + clamped(n, e % 2)];
          multiply_add<kSize, kStride>(thread, sums_k[o], slopes, of_queries);
        }
      });
    }
    if (plan.whole) thread.barrier(), load(step + ring.slots), ++step;
  }
  store_in_turns(thread, plan, at, [&](int turn) {
    const float factor[2] = {1, 1};
    T* const through = rows + (turn * at.rows + at.strip * 16) * kStride;
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
  });
}

}  // namespace mh::kernels
