// What the kernels for mixed heads share. A block holds 16 rows a strip, of all heads; the warps of a strip divide the
// heads among them and exchange probabilities, or their gradients, through shared memory as fragments, lane by lane. So
// each is made once, and mixed in fp32. Tiles of 16 rows stream by in a ring of places, the next ones on their way
// while one is worked on; where a place has no room for all heads, in parts of some heads each.
#pragma once

#include "cuda/attention_forward.h"
#include "cuda/mixed_plan.h"

namespace mh::kernels {

// Places for what streams by, taken one after the other.
template <class T>
struct Ring {
  T* memory;
  int slots, size;  // size: elements of a place
  MH_DEVICE T* place(int step) const { return memory + step % slots * size; }
  // Until what is in the place of this step is there, for all threads.
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
// kStride). head_of: which head of `source` each is, or null. Zeros from row `end` on, and, if kBefore, before row 0.
template <int kSize, bool kBefore = false, class Thread, class T>
MH_DEVICE void load_heads(const Thread& thread, T* to, const Rows<const T>& source, int64_t b, const int64_t* head_of,
                          int first, int count, int rows, int from, int end, int size, bool aligned) {
  constexpr int kStride = kSize + kPad, kVector = 16 / static_cast<int>(sizeof(T)), kVectors = kSize / kVector;
  for (int i = thread.index(); i < count * rows * kVectors; i += thread.threads()) {
    const int c = i % kVectors * kVector, r = i / kVectors % rows, h = i / kVectors / rows;
    copy_vector(thread, to + (h * rows + r) * kStride + c,
                row_of(source, b, head_of != nullptr ? head_of[first + h] : first + h, 0), source.position,
                kBefore && from + r < 0 ? end : from + r, end, c, size, aligned);
  }
}

// 16 rows that stream by, zeros from `end` on; and where their window begins, and ends, if they have one.
struct MixedTile {
  int from = 0, end = 0;
  int window = 0, window_end = 0;
  int window_first = 0;  // what the window has before it is not of the tile
  MH_DEVICE bool there() const { return from < end; }
};

// Of a range, without a window: tile n, and that after another, n.
struct Tiles {
  KeyRange range;
  MH_DEVICE MixedTile operator()(int n) const { return {range.first + 16 * n, range.end}; }
  MH_DEVICE MixedTile after(const MixedTile& tile, int) const { return {tile.from + 16, tile.end}; }
};

// Tensors whose rows meet in a product, of heads first … end - 1: those that stream by, and those that stay with the
// block. Where there are relative positions (mixed_relative.h) there may be two of either, and a window of 16 rows more
// than the block has streams by with them. Those without data are not there.
template <class T, int kSize, int kComing = 1, int kStaying = 1, bool kWindow = false>
struct Meeting {
  static constexpr int kStride = kSize + kPad;
  struct Side {
    Rows<const T> rows;
    const int64_t* head_of;  // which head of them each is, or null
  };
  struct None {};
  Side coming, staying;
  int first, end, size;  // size: of a row
  const T* kept;         // (kStaying, heads, rows of the block, kStride), where they are
  std::conditional_t<kComing == 2, Side, None> coming_too{};
  std::conditional_t<kStaying == 2, Side, None> staying_too{};
  std::conditional_t<kWindow, Side, None> window{};

  // Of a part that begins with head `begin`, and of the first tensor or (1) the other: (16, kStride) of a head; (rows
  // of the block, kStride); and (rows of the block + 16, kStride).
  MH_DEVICE const T* comes(const MixedPlan& plan, const T* place, int begin, int head, int n = 0) const {
    return place + (n * plan.heads + head - begin) * 16 * kStride;
  }
  MH_DEVICE const T* stays(const MixedPlan& plan, const T* place, int begin, int head, int n = 0) const {
    const int rows = 16 * plan.strips * kStride;
    return plan.kept > 0 ? kept + (n * (end - first) + head - first) * rows
                         : place + before_staying(plan) + (n * plan.heads + head - begin) * rows;
  }
  MH_DEVICE const T* window_of(const MixedPlan& plan, const T* place, int begin, int head) const {
    return place + (kComing * plan.heads * 16 + (head - begin) * (16 * plan.strips + 16)) * kStride;
  }

  // All that stays, where it is kept.
  template <class Thread>
  MH_DEVICE void keep(const Thread& thread, const MixedCall& a, const MixedPlan& plan, int64_t b, T* to, int row,
                      int rows_end) const {
    load_staying(thread, a, plan, b, to, end - first, first, end - first, row, rows_end);
  }
  template <class Thread>
  MH_DEVICE void load_coming(const Thread& thread, const MixedCall& a, const MixedPlan& plan, int64_t b, T* place,
                             int begin, int count, const MixedTile& tile) const {
    // Alone it is always there; to ask would take registers.
    if (kComing == 1 || is_there(coming)) load_side(thread, a, b, place, coming, begin, count, 16, tile.from, tile.end);
    if constexpr (kComing == 2)
      if (is_there(coming_too))
        load_side(thread, a, b, place + plan.heads * 16 * kStride, coming_too, begin, count, 16, tile.from, tile.end);
    if constexpr (kWindow)
      if (is_there(window))
        load_side<true>(thread, a, b, place + kComing * plan.heads * 16 * kStride, window, begin, count,
                        16 * plan.strips + 16, tile.window, tile.window_end);
  }
  // Behind what comes.
  template <class Thread>
  MH_DEVICE void load_staying(const Thread& thread, const MixedCall& a, const MixedPlan& plan, int64_t b, T* place,
                              int begin, int count, int row, int rows_end) const {
    load_staying(thread, a, plan, b, place + before_staying(plan), plan.heads, begin, count, row, rows_end);
  }

 private:
  static MH_DEVICE int before_staying(const MixedPlan& plan) {
    return plan.heads * (kComing + (kWindow ? 1 + plan.strips : 0)) * 16 * kStride;
  }
  // To (kStaying, heads at once, rows of the block, kStride).
  template <class Thread>
  MH_DEVICE void load_staying(const Thread& thread, const MixedCall& a, const MixedPlan& plan, int64_t b, T* to,
                              int at_once, int begin, int count, int row, int rows_end) const {
    if (is_there(staying)) load_side(thread, a, b, to, staying, begin, count, 16 * plan.strips, row, rows_end);
    if constexpr (kStaying == 2)
      if (is_there(staying_too))
        load_side(thread, a, b, to + at_once * 16 * plan.strips * kStride, staying_too, begin, count, 16 * plan.strips,
                  row, rows_end);
  }
  static MH_DEVICE bool is_there(const Side& side) { return side.rows.data != nullptr; }
  template <bool kBefore = false, class Thread>
  MH_DEVICE void load_side(const Thread& thread, const MixedCall& a, int64_t b, T* to, const Side& side, int begin,
                           int count, int rows, int from, int from_end) const {
    load_heads<kSize, kBefore>(thread, to, side.rows, b, side.head_of, begin, count, rows, from, from_end, size,
                               a.aligned);
  }
};

// Pieces of 16 columns of a product that are loaded ahead (multiply_turned), which registers have room for beside the
// sums of several heads. With relative positions each kernel has its own number.
template <class T, int kSize>
constexpr int kMixedAhead = kWidest<T, kSize> ? 1
                            : sizeof(T) == 4  ? 2
                                              : 4;

// What streams by: of each tile of 16 rows some meetings in turn, each in parts of plan.heads heads. tiles(n): tile n.
template <class Meets, int kMeetings, class AllTiles>
struct Parts {
  Meets of[kMeetings];
  int row, rows_end;  // of the block's own, which stay
  AllTiles tiles;
  int of_tile;
  MH_DEVICE Parts(const MixedPlan& plan, const Meets (&meetings)[kMeetings], int own, int own_end, const AllTiles& all)
      : row(own), rows_end(own_end), tiles(all), of_tile(0) {
    MH_FOR (n, kMeetings) of[n] = meetings[n], of_tile += count(plan, n);
  }

  // Part `step` of all into a place.
  template <class Thread, class T>
  MH_DEVICE void load(const Thread& thread, const MixedCall& a, const MixedPlan& plan, int64_t b, int step,
                      T* place) const {
    const MixedTile tile = tiles(step / of_tile);
    int part = step % of_tile;
    MH_FOR (n, kMeetings) {
      if (tile.there() && part >= 0 && part < count(plan, n)) {
        const Meets& x = of[n];
        const int begin = x.first + part * plan.heads, left = x.end - begin,
                  heads = left < plan.heads ? left : plan.heads;
        x.load_coming(thread, a, plan, b, place, begin, heads, tile);
        if (plan.kept == 0) x.load_staying(thread, a, plan, b, place, begin, heads, row, rows_end);
      }
      part -= count(plan, n);
    }
    thread.end_group();
  }

 private:
  MH_DEVICE int count(const MixedPlan& plan, int n) const {
    return (of[n].end - of[n].first + plan.heads - 1) / plan.heads;
  }
};

// Heads first … end - 1, by parts as they come, from `step` on: work(begin, end, place). Then load(step) brings another
// part to the place.
template <class T, class Thread, class Load, class Work>
MH_DEVICE void each_part(const Thread& thread, const Ring<T>& ring, int& step, int at_once, int first, int end,
                         const Load& load, const Work& work) {
  for (int begin = first; begin < end; begin += at_once, ++step) {
    ring.await(thread);
    work(begin, begin + at_once < end ? begin + at_once : end, ring.place(step));
    thread.barrier();
    load(step + ring.slots);
  }
}

// How shared memory is divided: tiles that stay, places, and behind them fragments.
template <class T>
struct MixedMemory {
  Ring<T> ring;
  MH_DEVICE MixedMemory(const MixedPlan& plan, T* rows, int stride)
      : ring{rows + plan.kept * 16 * plan.strips * stride, plan.slots, plan.place * 16 * stride} {}
  // From fragment `first` on.
  template <class X>
  MH_DEVICE Left<X>* fragments(int first) const {
    static_assert(sizeof(Left<X>) == sizeof(Left<T>));
    return reinterpret_cast<Left<X>*>(ring.memory + ring.slots * ring.size) + first * 32;
  }
  // A warp's products with a window, which are behind so many fragments.
  template <class Thread>
  MH_DEVICE float* products(const Thread& thread, int all) const {
    return reinterpret_cast<float*>(fragments<T>(all)) + thread.warp() * kShiftedBytes / 4;
  }
};

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

// Those of heads from `first` on, up to `end` - 1. Not where they are multiplied part by part: what is dropped is the
// same for all parts, so that the compiler would hold it for all heads in registers that there are not.
template <int kOwn>
MH_DEVICE void drop_tiles(const MixedCall& a, int64_t b, int first, int end, int row, int column, Sum (&x)[kOwn][2]) {
  MH_FOR (o, kOwn)
    if (first + o < end) drop_tile(a, b, first + o, row, column, x[o]);
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

// The warps' results go through shared memory, which has room for plan.storing of each strip at once: store(its place
// among them).
template <class Thread, class Store>
MH_DEVICE void store_in_turns(const Thread& thread, const MixedPlan& plan, const MixedPlace& at, const Store& store) {
  thread.template wait<0>();
  thread.barrier();
  for (int turn = 0; turn < plan.groups; turn += plan.storing) {
    if (at.group >= turn && at.group < turn + plan.storing) store(at.group - turn);
    thread.barrier();
  }
}

}  // namespace mh::kernels
