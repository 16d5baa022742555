// Shared parts of all head-mixing kernels.
//
// Tiling: a block computes strips of 16 rows of all heads. The warps of a strip divide the heads among them and
// exchange probabilities, or their gradients, through shared memory as fragments, lane by lane, so that each is
// computed once; they are mixed on the tensor cores or in fp32. Tiles of 16 rows are streamed through a ring of
// pipeline stages, filled with cp.async while another stage is read; a stage without room for all heads takes parts of
// some heads each.
#pragma once

#include <cstring>

#include "cuda/attention_forward.h"
#include "cuda/mixed_plan.h"

namespace mh::kernels {

// A ring buffer of pipeline stages ("places") for the tiles that stream by. Places are filled while another is read;
// the place of the part before is free after the barrier of the next part. A single place is filled when it is needed.
template <class T>
struct Ring {
  T* memory;
  int slots, size;  // size: elements of a stage
  int at = 0;       // the stage that is read

  MH_DEVICE T* place() const { return memory + at * size; }
  // Fills all stages but one. Copies issued before, of the resident tiles, complete with the first stage.
  template <class Thread, class Load>
  MH_DEVICE void begin(const Thread& thread, const Load& load) const {
    if (slots == 1) thread.end_group();
    MH_ROLLED
    for (int slot = 0; slot < slots - 1; ++slot) load(memory + slot * size);
  }
  // Waits until the next part has arrived for all threads, which have finished the part before. load(place) starts the
  // copy of another part.
  template <class Thread, class Load>
  MH_DEVICE void await(const Thread& thread, const Load& load) const {
    if (slots <= 2) thread.template wait<0>();
    else if (slots == 3) thread.template wait<1>();
    else thread.template wait<2>();
    thread.barrier();
    load(memory + (at > 0 ? at - 1 : slots - 1) * size);
    if (slots > 1) return;
    thread.template wait<0>();
    thread.barrier();
  }
  MH_DEVICE void end() { at = at + 1 < slots ? at + 1 : 0; }
};

// A streamed tile of 16 rows, zeros from `end` on; and the begin and end of its window, if it has one.
struct MixedTile {
  int from = 0, end = 0;
  int window = 0, window_end = 0;
  int window_first = 0;  // rows of the window before this do not belong to the tile
  MH_DEVICE bool there() const { return from < end; }
};

// The tiles of a range, without windows.
struct Tiles {
  KeyRange range;
  MH_DEVICE MixedTile operator()(int n) const { return {range.first + 16 * n, range.end}; }
};

// The operands of a product, for heads first … end - 1: `coming` is streamed, `staying` is resident. With relative
// positions (mixed_relative.h) kComing or kStaying may be 2, and kWindow adds a window of rows, loaded with each tile,
// that has 16 rows more than the block. A tensor without data is left out.
template <class T, int kSize, int kComing = 1, int kStaying = 1, bool kWindow = false>
struct Meeting {
  static constexpr int kStride = kSize + kPad;
  // A tensor of a batch row.
  struct Side {
    const T* data = nullptr;
    int64_t head_stride = 0;
    int row_stride = 0;                // row stride, for to_row()
    const int64_t* head_of = nullptr;  // head of the tensor for each head, or null
    Side() = default;
    MH_DEVICE Side(const Rows<const T>& rows, int64_t b, const int64_t* heads)
        : data(rows.data + b * rows.batch_stride),
          head_stride(rows.head_stride),
          row_stride(static_cast<int>(rows.row_stride)),
          head_of(heads) {}
    MH_DEVICE void become(const Side& x, bool asked) {
      data = asked ? x.data : data, head_stride = asked ? x.head_stride : head_stride;
      row_stride = asked ? x.row_stride : row_stride, head_of = asked ? x.head_of : head_of;
    }
  };
  struct None {
    MH_DEVICE void become(const None&, bool) {}
  };
  Side coming, staying;
  int first, end, size;  // size of a row
  const T* kept;         // (kStaying, heads, rows of the block, kStride): address of resident rows
  std::conditional_t<kComing == 2, Side, None> coming_too{};
  std::conditional_t<kStaying == 2, Side, None> staying_too{};
  std::conditional_t<kWindow, Side, None> window{};

  // Becomes x if `asked`, member by member: a choice between structs would go through local memory.
  MH_DEVICE void become(const Meeting& x, bool asked) {
    coming.become(x.coming, asked), staying.become(x.staying, asked);
    coming_too.become(x.coming_too, asked), staying_too.become(x.staying_too, asked);
    window.become(x.window, asked);
    first = asked ? x.first : first, end = asked ? x.end : end, size = asked ? x.size : size;
    kept = asked ? x.kept : kept;
  }

  // Return the rows of a part that begins with head `begin`, of the first tensor or (1) the second: (16, kStride) of a
  // head; (rows of the block, kStride); and (rows of the block + 16, kStride).
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

  // Loads all resident rows.
  template <class Thread>
  MH_DEVICE void keep(const Thread& thread, const AttentionParams& a, const MixedPlan& plan, T* to, int row,
                      int rows_end) const {
    load_staying(thread, a, plan, to, end - first, first, end - first, row, rows_end);
  }
  template <class Thread>
  MH_DEVICE void load_coming(const Thread& thread, const AttentionParams& a, const MixedPlan& plan, T* place, int begin,
                             int count, const MixedTile& tile) const {
    // A single streamed tensor is never null; the check would cost registers.
    if (kComing == 1 || is_there(coming)) load_side(thread, a, place, coming, begin, count, 16, tile.from, tile.end);
    if constexpr (kComing == 2)
      if (is_there(coming_too))
        load_side(thread, a, place + plan.heads * 16 * kStride, coming_too, begin, count, 16, tile.from, tile.end);
    if constexpr (kWindow)
      if (is_there(window))
        load_side(thread, a, place + kComing * plan.heads * 16 * kStride, window, begin, count, 16 * plan.strips + 16,
                  tile.window, tile.window_end);
  }
  // The window follows the streamed rows.
  template <class Thread>
  MH_DEVICE void load_staying(const Thread& thread, const AttentionParams& a, const MixedPlan& plan, T* place,
                              int begin, int count, int row, int rows_end) const {
    load_staying(thread, a, plan, place + before_staying(plan), plan.heads, begin, count, row, rows_end);
  }

 private:
  static MH_DEVICE int before_staying(const MixedPlan& plan) {
    return plan.heads * (kComing + (kWindow ? 1 + plan.strips : 0)) * 16 * kStride;
  }
  // Loads the resident rows of some heads to (kStaying, heads, rows of the block, kStride).
  template <class Thread>
  MH_DEVICE void load_staying(const Thread& thread, const AttentionParams& a, const MixedPlan& plan, T* to, int at_once,
                              int begin, int count, int row, int rows_end) const {
    if (is_there(staying)) load_side(thread, a, to, staying, begin, count, 16 * plan.strips, row, rows_end);
    if constexpr (kStaying == 2)
      if (is_there(staying_too))
        load_side(thread, a, to + at_once * 16 * plan.strips * kStride, staying_too, begin, count, 16 * plan.strips,
                  row, rows_end);
  }
  static MH_DEVICE bool is_there(const Side& side) { return side.data != nullptr; }
  // Loads `count` heads from head `begin` on, each `rows` rows (a multiple of 16) from row `from` on, to (count, rows,
  // kStride); a warp loads 16 rows of a head. Zeros before row 0 and from row `end` on.
  template <class Thread>
  MH_DEVICE void load_side(const Thread& thread, const AttentionParams& a, T* to, const Side& side, int begin,
                           int count, int rows, int from, int from_end) const {
    const int pieces = rows / 16;
    MH_ROLLED
    for (int i = thread.warp(); i < count * pieces; i += thread.threads() / 32) {
      const int h = begin + (pieces == 1 ? i : i / pieces), row = pieces == 1 ? 0 : i % pieces * 16;
      const T* const data = side.data + side.head_stride * (side.head_of != nullptr ? side.head_of[h] : h);
      load_rows<kSize>(thread, warp_of(thread), to + i * 16 * kStride, data, side.row_stride, from + row, 16, from_end,
                       size, a.aligned, [](int r) { return r * kStride; });
    }
  }
};

// Number of pieces of 16 columns that a product loads in advance (multiply_turned), limited by the registers besides
// the accumulators of several heads. With relative positions each kernel has its own number.
template <class T, int kSize>
constexpr int kMixedAhead = kWidest<T, kSize>                            ? 1
                            : kSize * sizeof(T) >= 512 || sizeof(T) == 4 ? 2
                                                                         : 4;

// The order of streaming: for each tile of 16 rows the operands of several products in turn, each in parts of
// plan.heads heads; at least one of them has heads. all(n): tile n.
template <class Meets, int kMeetings, class AllTiles>
struct Parts {
  Meets of[kMeetings];
  int row, rows_end;  // the block's resident rows
  AllTiles all;
  // The next part: its tile, operands and first head.
  int number = 0, meeting = -1, head = 0;
  MH_DEVICE Parts(const Meets (&meetings)[kMeetings], int own, int own_end, const AllTiles& tiles)
      : row(own), rows_end(own_end), all(tiles) {
    MH_FOR (n, kMeetings) of[n] = meetings[n];
    next_meeting();
  }

  // Starts the copy of the next part to a stage; does nothing after the last part.
  template <class Thread, class T>
  MH_DEVICE void load(const Thread& thread, const AttentionParams& a, const MixedPlan& plan, T* place) {
    if (const MixedTile tile = all(number); tile.there()) {
      const Meets x = next();
      const int heads = x.end - head < plan.heads ? x.end - head : plan.heads;
      x.load_coming(thread, a, plan, place, head, heads, tile);
      if (plan.kept == 0) x.load_staying(thread, a, plan, place, head, heads, row, rows_end);
      head += plan.heads;
      if (head >= x.end) next_meeting();
    }
    thread.end_group();
  }

 private:
  MH_DEVICE Meets next() const {
    Meets x = of[0];
    MH_FOR (n, kMeetings - 1) x.become(of[n + 1], n + 1 == meeting);
    return x;
  }
  MH_DEVICE void next_meeting() {
    int end;
    do {
      if (++meeting == kMeetings) meeting = 0, ++number;
      const Meets x = next();
      head = x.first, end = x.end;
    } while (head >= end);
  }
};

// Processes heads first … end - 1 in parts, in the order of streaming: work(begin, end, place). before(): once, when
// all threads have finished the part before. load(place) starts the copy of another part.
template <class T, class Thread, class Load, class Before, class Work>
MH_DEVICE void each_part(const Thread& thread, Ring<T>& ring, int at_once, int first, int end, const Load& load,
                         const Before& before, const Work& work) {
  for (int begin = first; begin < end; begin += at_once) {
    ring.await(thread, load);
    if (begin == first) before();
    work(begin, begin + at_once < end ? begin + at_once : end, ring.place());
    ring.end();
  }
}
template <class T, class Thread, class Load, class Work>
MH_DEVICE void each_part(const Thread& thread, Ring<T>& ring, int at_once, int first, int end, const Load& load,
                         const Work& work) {
  each_part(
      thread, ring, at_once, first, end, load, [] {}, work);
}

// The layout of shared memory: resident tiles, then stages, then fragments.
template <class T>
struct MixedMemory {
  Ring<T> ring;
  MH_DEVICE MixedMemory(const MixedPlan& plan, T* rows, int stride)
      : ring{rows + plan.kept * 16 * plan.strips * stride, plan.slots, plan.place * 16 * stride} {}
  // Returns the fragments from `first` on.
  template <class X>
  MH_DEVICE Left<X>* fragments(int first) const {
    static_assert(sizeof(Left<X>) == sizeof(Left<T>));
    return reinterpret_cast<Left<X>*>(ring.memory + ring.slots * ring.size) + first * 32;
  }
  // Returns the scratch of a warp's products with a window, after `all` fragments.
  template <class Thread>
  MH_DEVICE float* products(const Thread& thread, int all) const {
    return reinterpret_cast<float*>(fragments<T>(all)) + thread.warp() * kShiftedBytes / 4;
  }
};

// Fragments (16, 16) of some heads of a strip. For 16-bit elements half fragments of two heads are adjacent, as the
// tensor cores read them for mixing.
template <class X>
struct Exchange {
  static constexpr int of(int heads) { return (heads + 1) / 2 * 2; }  // number of fragments in memory
  struct alignas(8) Half {
    uint32_t x[2];
  };
  Half* memory;  // (pairs of heads, halves, 32 lanes, 2 heads)
  MH_DEVICE explicit Exchange(Left<X>* fragments) : memory(reinterpret_cast<Half*>(fragments)) {}
  template <class Thread>
  MH_DEVICE Half& half(const Thread& thread, int head, int n) const {
    return memory[((head / 2 * 2 + n) * 32 + thread.lane()) * 2 + head % 2];
  }
  // With an odd number of heads, zeroes the partner of the last one. By one warp of a strip.
  template <class Thread>
  MH_DEVICE void begin(const Thread& thread, int heads) const {
    if (heads % 2 == 0) return;
    MH_FOR (n, 2) half(thread, heads, n) = {};
  }
  template <class Thread>
  MH_DEVICE void put(const Thread& thread, int head, const Sum (&sums)[2]) const {
    MH_FOR (n, 2)
      half(thread, head, n) = {thread.pack(sums[n].x[0], sums[n].x[1], X{}),
                               thread.pack(sums[n].x[2], sums[n].x[3], X{})};
  }
  template <class Thread>
  MH_DEVICE void get(const Thread& thread, int head, Sum (&sums)[2]) const {
    MH_FOR (n, 2) {
      const Half x = half(thread, head, n);
      MH_FOR (r, 2) thread.unpack(x.x[r], sums[n].x[2 * r], sums[n].x[2 * r + 1], X{});
    }
  }
};
template <>
struct Exchange<float> {
  static constexpr int of(int heads) { return heads; }
  Left<float>* memory;  // (heads, 32 lanes)
  MH_DEVICE explicit Exchange(Left<float>* fragments) : memory(fragments) {}
  template <class Thread>
  MH_DEVICE void begin(const Thread&, int) const {}
  template <class Thread>
  MH_DEVICE void put(const Thread& thread, int head, const Sum (&sums)[2]) const {
    Left<float> x;
    round_to(thread, x, sums[0], sums[1]);
    memory[head * 32 + thread.lane()] = x;
  }
  template <class Thread>
  MH_DEVICE void get(const Thread& thread, int head, Sum (&sums)[2]) const {
    widen(thread, sums, memory[head * 32 + thread.lane()]);
  }
};

// Probabilities are exchanged with 11 bits even if T has 8: they are rounded to T only once, after mixing.
template <class T>
struct Exchanged {
  using Probability = Fp16;
};
template <>
struct Exchanged<float> {
  using Probability = float;
};

// The position of a thread: its strip of 16 rows, and its warp among the warps that share the strip.
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

// A lane's two queries of a strip in a pass with resident queries; `first` is the first query of the strip.
struct MixedQueries {
  int first, row, clamped[2];
  const float* matrix[2];  // or, turned, of the transpose
  MH_DEVICE MixedQueries(const AttentionParams& a, const float* matrices, int64_t b, int from, int g)
      : first(from), row(from + g) {
    MH_FOR (r, 2) {
      clamped[r] = row + 8 * r < a.queries ? row + 8 * r : static_cast<int>(a.queries) - 1;
      matrix[r] = matrices + b * a.matrix_batch_stride + clamped[r] * a.matrix_query_stride;
    }
  }
};

// Loads elements of a matrix for the warp's heads, which are adjacent in its row: from `from` on, `left` of them, at
// least one, then zeros; as vectors, if all rows are aligned and have whole vectors.
template <int kOwn, class Thread>
MH_DEVICE void load_weights(const Thread& thread, float (&to)[kOwn], const float* from, int left, bool vectors) {
  if (vectors) {
    thread.read(to, from);
  } else {
    MH_FOR (o, kOwn) to[o] = o < left ? from[o] : 0;
  }
}
template <int kOwn>
MH_DEVICE bool has_vectors(const float* matrix, int heads) {
  return heads % kOwn == 0 && reinterpret_cast<uintptr_t>(matrix) % (4 * kOwn) == 0;
}

// Turns products of 16 queries, from `first` on, and 16 keys of a head into probabilities; and, if kSlopes, slopes:
// probabilities times the derivative of the logits. log_sum: log-sum-exp (log2) of a lane's two queries.
template <bool kSlopes, class Thread>
MH_DEVICE void to_probabilities(const Thread& thread, const AttentionParams& a, const MixedQueries& q, int key, int end,
                                const float (&log_sum)[2], Sum (&p)[2], [[maybe_unused]] Sum (&slopes)[2]) {
  hide_unseen<false>(thread, a, end, q.first, key, p);
  by_normaliser(a, [&](const auto& normaliser) {
    MH_FOR (n, 2)
      MH_FOR (i, 4) {
        float& x = p[n].x[i];
        const float product = x;
        x = thread.exp2(normaliser.logarithm(thread, product) - log_sum[i / 2]);
        if constexpr (kSlopes) slopes[n].x[i] = normaliser.by_slope(thread, x, x, product);
      }
  });
}
// Statistics of head j of batch row b.
template <class Thread>
MH_DEVICE void to_probabilities(const Thread& thread, const AttentionParams& a, int64_t b, int j, const MixedQueries& q,
                                int key, int end, const float* log_sums, Sum (&p)[2]) {
  const float* of_head = log_sums + (b * a.in_heads + j) * a.queries;
  const float log_sum[2] = {of_head[q.clamped[0]] * kLog2E, of_head[q.clamped[1]] * kLog2E};
  to_probabilities<false>(thread, a, q, key, end, log_sum, p, p);
}

// Applies dropout to the tiles of heads first … end - 1. Not for tiles that are multiplied part by part: the decisions
// are equal for all parts, so the compiler would keep them for all heads in registers, and spill.
template <int kOwn>
MH_DEVICE void drop_tiles(const AttentionParams& a, int64_t b, int first, int end, int row, int column,
                          Sum (&x)[kOwn][2]) {
  MH_FOR (o, kOwn)
    if (first + o < end) drop(a, b, first + o, row, column, x[o]);
}

// Computes mixed[o] = Σ_h weights[h, o] times the exchanged fragment of head h, with queries as rows of a fragment.
// `of_row`: row stride of the matrix. own, end: heads of the weights.
template <int kOwn, class Thread, class X>
MH_DEVICE void mix_rows(const Thread& thread, Sum (&mixed)[kOwn][2], const Exchange<X>& exchange, int heads,
                        const float* const (&matrix)[2], int of_row, int own, int end) {
  if (own >= end) return;
  const bool vectors = has_vectors<kOwn>(matrix[0], of_row);
  MH_ROLLED
  for (int h = 0; h < heads; ++h) {
    float weights[2][kOwn];
    MH_FOR (r, 2) load_weights(thread, weights[r], matrix[r] + h * of_row + own, end - own, vectors);
    Sum x[2];
    exchange.get(thread, h, x);
    MH_FOR (o, kOwn)
      MH_FOR (n, 2)
        MH_FOR (e, 4) mixed[o][n].x[e] += weights[e / 2][o] * x[n].x[e];
  }
}

// The same with queries as columns: matrix_of(c, e) returns the matrix of column e of fragment c.
template <int kOwn, class Thread, class X, class MatrixOf>
MH_DEVICE void mix_columns(const Thread& thread, Sum (&mixed)[kOwn][2], const Exchange<X>& exchange, int heads,
                           const MatrixOf& matrix_of, int of_row, int own, int end) {
  if (own >= end) return;
  const float* const matrix[2][2] = {{matrix_of(0, 0), matrix_of(0, 1)}, {matrix_of(1, 0), matrix_of(1, 1)}};
  const bool vectors = has_vectors<kOwn>(matrix[0][0], of_row);
  MH_ROLLED
  for (int h = 0; h < heads; ++h) {
    float weights[2][2][kOwn];
    MH_FOR (c, 2)
      MH_FOR (e, 2) load_weights(thread, weights[c][e], matrix[c][e] + h * of_row + own, end - own, vectors);
    Sum x[2];
    exchange.get(thread, h, x);
    MH_FOR (o, kOwn)
      MH_FOR (n, 2)
        MH_FOR (e, 4) mixed[o][n].x[e] += weights[n][e % 2][o] * x[n].x[e];
  }
}

// Returns the largest power of two not above a number, or 1 for 0: the scale of weights in fp16. At most 2^126, so that
// it has an inverse.
MH_DEVICE float power_below(float largest) {
  uint32_t bits;
  memcpy(&bits, &largest, sizeof bits);
  bits &= 0x7F800000u;
  if (bits > 0x7E800000u) bits = 0x7E800000u;
  float power;
  memcpy(&power, &bits, sizeof power);
  return power > 0 ? power : 1;
}
// Returns the inverse of a power of two between 2^-126 and 2^126.
MH_DEVICE float inverse_of_power(float power) {
  uint32_t bits;
  memcpy(&bits, &power, sizeof bits);
  bits = 0x7F000000u - bits;
  memcpy(&power, &bits, sizeof power);
  return power;
}
// Returns power_below() of the largest of `count` numbers.
MH_DEVICE float power_below(const float* numbers, int64_t apart, int count) {
  float largest = 0;
  for (int i = 0; i < count; ++i) largest = fmaxf(largest, fabsf(numbers[i * apart]));
  return power_below(largest);
}

// A mixing matrix shared by all queries of a batch row, which mixes 16-bit fragments on the tensor cores: adjacent half
// fragments of two heads, times their weights multiplied by the identity matrix, one above the other. A column of the
// matrix is scaled by its largest element to be in the range of fp16.
template <class X, int kOwn>
struct Weights {
  const uint32_t* numbers;  // (heads rounded up to even, across): each element twice; then scales (across)
  int heads, across;        // across: output heads of the block
  uint32_t unit;            // a lane's part of two columns of the identity matrix
  bool shared;              // whether the matrix is in shared memory

  // matrix: (heads, of_row), or null. of_block, own: first heads of the block and of the warp. row_offset: rows of
  // other weights stored before these. Called by all threads of the block; the weights are valid after the next
  // barrier.
  template <class Thread>
  MH_DEVICE Weights(const Thread& thread, const MixedPlan& plan, void* memory, const float* matrix, int from,
                    int of_row, int of_block, int own, int row_offset = 0)
      : heads(from),
        across(plan.groups * kOwn),
        unit(thread.lane() / 4 / 2 != thread.lane() % 4 ? 0
             : thread.lane() / 4 % 2 == 0               ? 0xFFFFu
                                                        : 0xFFFF0000u),
        shared(sizeof(X) == 2 && matrix != nullptr) {
    auto* const all =
        reinterpret_cast<uint32_t*>(static_cast<char*>(memory) + plan.bytes - plan.weights) + row_offset * across;
    numbers = all + own - of_block;
    if constexpr (sizeof(X) == 2) {
      if (!shared) return;
      const int rows = rows_of_weights(heads) - 1;
      MH_ROLLED
      for (int i = thread.index(); i < rows * across; i += thread.threads()) {
        const int row = i / across, column = i % across;
        const bool there = row < heads && of_block + column < of_row;
        float scale = 1;
        if constexpr (std::is_same_v<X, Fp16>)
          scale = there ? power_below(matrix + of_block + column, of_row, heads) : 1;
        const float x = there ? matrix[row * of_row + of_block + column] / scale : 0;
        all[i] = thread.pack(x, x, X{});
        if (row == 0) reinterpret_cast<float*>(all)[rows * across + column] = scale;
      }
    }
  }

  // Mixes without applying the scales.
  template <class Thread>
  MH_DEVICE void mix(const Thread& thread, Sum (&mixed)[kOwn][2], const Exchange<X>& exchange) const {
    if constexpr (sizeof(X) == 2) {
      const auto* from = reinterpret_cast<const Left<X>*>(exchange.memory) + thread.lane();
      const uint32_t* weights = numbers;
      MH_ROLLED
      for (int h = 0; h < heads; h += 2, from += 2 * 32, weights += 2 * across) {
        const Left<X> left[2] = {from[0], from[32]};
        const auto upper = *reinterpret_cast<const Own*>(weights),
                   lower = *reinterpret_cast<const Own*>(weights + across);
        MH_FOR (o, kOwn) {
          const uint32_t right[2] = {upper.x[o] & unit, lower.x[o] & unit};
          MH_FOR (n, 2) thread.multiply(mixed[o][n].x, left[n].x, right, X{});
        }
      }
    }
  }
  // Returns the scale of mixed head o.
  MH_DEVICE float scale(int o) const {
    if (!std::is_same_v<X, Fp16> || !shared) return 1;
    return reinterpret_cast<const float*>(numbers)[(rows_of_weights(heads) - 1) * across + o];
  }

 private:
  struct alignas(4 * kOwn) Own {
    uint32_t x[kOwn];
  };
};

// Stores the warps' results through shared memory, which has room for plan.storing warps of each strip at a time:
// store(index among them).
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
