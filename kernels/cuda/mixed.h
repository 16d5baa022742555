// What the kernels for mixed heads share. A block holds 16 rows a strip, of all heads; the warps of a strip divide the
// heads among them and exchange probabilities, or their gradients, through shared memory as fragments, lane by lane. So
// each is made once, and mixed in fp32. Tiles of 16 rows of all heads stream by in a ring of places, the next ones on
// their way while one is worked on.
#pragma once

#include "cuda/attention_forward.h"

namespace mh::kernels {

// How a block is made up, from what fits into its shared memory.
struct MixedPlan {
  int groups = 0, strips = 0;  // warps of a strip; strips
  int blocks = 0;              // among which the result's heads are divided
  int slots = 0;               // places for tiles that stream by
  int bytes = 0;               // of shared memory
  constexpr int threads() const { return 32 * groups * strips; }
};

constexpr int kMixedWarps = 8, kMostSlots = 4;

// Heads of a warp, whose sums are in its registers: `sums` numbers of each row and head.
template <class T>
constexpr int heads_of_warp(int sums) {
  const int most = (sizeof(T) == 4 ? 128 : 256) / sums;
  return most < 1 ? 1 : most > 4 ? 4 : most;
}

// A plan for so many heads to divide, `stationary` heads of rows that stay, tiles of `streaming` heads and exchanged
// fragments of `exchanged` heads. slots is 0 where nothing fits into `limit` bytes.
template <class T>
constexpr MixedPlan mixed_plan(int heads, int own, int stationary, int streaming, int exchanged, int stride,
                               int limit) {
  MixedPlan plan;
  const int all = (heads + own - 1) / own;
  plan.groups = all < kMixedWarps ? all : kMixedWarps;
  plan.blocks = (all + plan.groups - 1) / plan.groups;
  const int of_tile = 16 * stride * static_cast<int>(sizeof(T)), fragment = 32 * (sizeof(T) == 4 ? 32 : 16);
  const int kept = stationary > plan.groups ? stationary : plan.groups;  // warps write their results there
  for (plan.strips = kMixedWarps / plan.groups; plan.strips > 0; plan.strips /= 2) {
    const int fixed = plan.strips * (kept * of_tile + exchanged * fragment), left = limit - fixed;
    plan.slots = left < 0 ? 0 : left / (streaming * of_tile);
    if (plan.slots > kMostSlots) plan.slots = kMostSlots;
    plan.bytes = fixed + plan.slots * streaming * of_tile;
    if (plan.slots >= 2 || (plan.slots == 1 && plan.strips == 1)) return plan;
  }
  plan.slots = 0;
  return plan;
}

// Tile `step` of those that stream by.
template <class T>
struct Ring {
  T* memory;
  int slots, size;  // size: elements of a tile
  MH_DEVICE T* slot(int step) const { return memory + step % slots * size; }
  // Until it is there, for all threads.
  template <class Thread>
  MH_DEVICE void await(const Thread& thread) const {
    if (slots == 1) thread.template wait<0>();
    else if (slots == 2) thread.template wait<1>();
    else if (slots == 3) thread.template wait<2>();
    else thread.template wait<3>();
    thread.barrier();
  }
};

// `count` heads from head `first` on, each `rows` rows (a multiple of 16) from row `from` on: to (count, rows,
// kStride). head_of: which head of `source` each is, or null. Zeros from row `end` on.
template <int kSize, class Thread, class T>
MH_DEVICE void load_heads(const Thread& thread, T* to, const Rows<const T>& source, int64_t b, const int64_t* head_of,
                          int first, int count, int rows, int from, int end, int size, bool aligned) {
  constexpr int kStride = kSize + kPad, kVector = 16 / static_cast<int>(sizeof(T)), kVectors = kSize / kVector;
  for (int i = thread.index(); i < count * rows * kVectors; i += thread.threads()) {
    const int c = i % kVectors * kVector, r = i / kVectors % rows, h = i / kVectors / rows;
    copy_vector(thread, to + (h * rows + r) * kStride + c,
                row_of(source, b, head_of != nullptr ? head_of[first + h] : first + h, 0), source.position, from + r,
                end, c, size, aligned);
  }
}

// Fragments (16, 16) of some heads, of one strip.
template <class T>
struct Exchange {
  Left<T>* memory;  // (heads, 32 lanes)
  template <class Thread>
  MH_DEVICE void put(const Thread& thread, int head, const Sum (&sums)[2]) const {
    Left<T> x;
    round_to(thread, x, sums[0], sums[1]);
    memory[head * 32 + thread.lane()] = x;
  }
  template <class Thread>
  MH_DEVICE void get(const Thread& thread, int head, Sum (&sums)[2]) const {
    widen(thread, sums, memory[head * 32 + thread.lane()]);
  }
};

// Probabilities are exchanged with 11 bits where T has 8: they are rounded to T but once, when mixed.
template <class T>
struct Exchanged {
  using Probability = Fp16;
};
template <>
struct Exchanged<float> {
  using Probability = float;
};

// Where a thread stands: of a strip of 16 rows, and among the warps that share it.
struct MixedPlace {
  int strip, group, rows;  // rows of the block
  int g, t;                // row and pair of columns of the lane
  template <class Thread>
  MH_DEVICE MixedPlace(const Thread& thread, const MixedPlan& plan)
      : strip(thread.warp() / plan.groups),
        group(thread.warp() % plan.groups),
        rows(16 * plan.strips),
        g(thread.lane() / 4),
        t(thread.lane() % 4) {}
};

// What a query-stationary pass keeps of a lane's two queries, the first of them `row`.
struct MixedQueries {
  int row, clamped[2];
  const float* matrix[2];
  MH_DEVICE MixedQueries(const MixedCall& a, int64_t b, int first) : row(first) {
    MH_FOR (r, 2) {
      clamped[r] = row + 8 * r < a.queries ? row + 8 * r : static_cast<int>(a.queries) - 1;
      matrix[r] = a.matrix + b * a.matrix_row + clamped[r] * a.matrix_query;
    }
  }
};

// Products of 16 queries and 16 keys of head j become probabilities.
template <class Thread>
MH_DEVICE void probabilities(const Thread& thread, const MixedCall& a, int64_t b, int j, const MixedQueries& q, int key,
                             int end, const float* log_sums, Sum (&p)[2]) {
  const float* of_head = log_sums + (b * a.in + j) * a.queries;
  MH_FOR (r, 2) {
    const float log_sum = of_head[q.clamped[r]] * kLog2E;
    MH_FOR (n, 2)
      MH_FOR (e, 2) {
        float& x = p[n].x[2 * r + e];
        const bool there = sees(a, end, q.row + 8 * r, key + n * 8 + thread.lane() % 4 * 2 + e);
        x = there ? thread.exp2(logarithm(thread, a, x) - log_sum) : 0;
      }
  }
}

// And those times the derivative of the logits, the slopes.
template <class Thread>
MH_DEVICE void probabilities(const Thread& thread, const MixedCall& a, int64_t b, int j, const MixedQueries& q, int key,
                             int end, const float* log_sums, Sum (&p)[2], Sum (&slopes)[2]) {
  MH_FOR (n, 2) slopes[n] = p[n];
  probabilities(thread, a, b, j, q, key, end, log_sums, p);
  MH_FOR (n, 2)
    MH_FOR (i, 4) {
      float& y = slopes[n].x[i];
      y = p[n].x[i] > 0 ? p[n].x[i] * slope(thread, a, y) : 0;
    }
}

MH_DEVICE void drop_tile(const MixedCall& a, int64_t b, int head, int row, int column, Sum (&x)[2]) {
  MH_FOR (r, 2)
    MH_FOR (n, 2) drop_pair(a, b, head, row + 8 * r, column + n * 8, r, x[n]);
}

// mixed[o] = Σ_h weight(h, o, n, e) times number e of fragment n of what head h exchanges.
template <int kOwn, class Thread, class X, class Weight>
MH_DEVICE void mix(const Thread& thread, Sum (&mixed)[kOwn][2], const Exchange<X>& exchange, int heads,
                   const Weight& weight) {
  for (int h = 0; h < heads; ++h) {
    Sum x[2];
    exchange.get(thread, h, x);
    MH_FOR (o, kOwn)
      MH_FOR (n, 2)
        MH_FOR (e, 4) mixed[o][n].x[e] += weight(h, o, n, e) * x[n].x[e];
  }
}

// Steps of a ring that are, in turn, for 16 keys: two tensors' heads.
template <class T>
struct InTurn {
  struct Heads {
    Rows<const T> rows;
    const int64_t* head_of;
    int first, count, size;
  };
  Heads even, odd;
  KeyRange seen;
  int tiles;
  template <int kSize, class Thread>
  MH_DEVICE void load(const Thread& thread, const MixedCall& a, int64_t b, const Ring<T>& ring, int step) const {
    const auto load = [&](const Heads& x) {
      load_heads<kSize>(thread, ring.slot(step), x.rows, b, x.head_of, x.first, x.count, 16, seen.first + step / 2 * 16,
                        seen.end, x.size, a.aligned);
    };
    if (step / 2 < tiles && step % 2 == 0) load(even);
    if (step / 2 < tiles && step % 2 == 1) load(odd);
    thread.end_group();
  }
};

}  // namespace mh::kernels
