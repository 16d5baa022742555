// Mixes heads: fragments of probabilities or gradients that the warps of a strip exchange through shared memory, and
// the products of mixing matrices with them.
//
// The warps of a strip exchange fragments lane by lane, so that each is computed once. A matrix shared by all queries
// mixes 16-bit fragments on the tensor cores; a matrix of each query, and fp32, mix in fp32.
#pragma once

#include <cstring>

#include "cuda/head_mixing/pipeline.h"

namespace mh::kernels {

// Fragments (16, 16) of some heads of a strip. For 16-bit elements half fragments of two heads are adjacent, as the
// tensor cores read them for mixing.
template <class X>
struct FragmentExchange {
  static constexpr int count(int heads) { return (heads + 1) / 2 * 2; }  // number of fragments in memory
  struct alignas(8) Half {
    uint32_t x[2];
  };
  Half* memory;  // (pairs of heads, halves, 32 lanes, 2 heads)
  MH_DEVICE explicit FragmentExchange(FragmentA<X>* fragments) : memory(reinterpret_cast<Half*>(fragments)) {}
  template <class Thread>
  MH_DEVICE Half& half(const Thread& thread, int head, int n) const {
    return memory[((head / 2 * 2 + n) * 32 + thread.lane()) * 2 + head % 2];
  }
  // With an odd number of heads, zeroes the partner of the last one. By one warp of a strip.
  template <class Thread>
  MH_DEVICE void zero_padding(const Thread& thread, int heads) const {
    if (heads % 2 == 0) return;
    MH_FOR (n, 2) half(thread, heads, n) = {};
  }
  template <class Thread>
  MH_DEVICE void put(const Thread& thread, int head, const Accumulator (&sums)[2]) const {
    MH_FOR (n, 2)
      half(thread, head, n) = {thread.pack(sums[n].x[0], sums[n].x[1], X{}),
                               thread.pack(sums[n].x[2], sums[n].x[3], X{})};
  }
  template <class Thread>
  MH_DEVICE void get(const Thread& thread, int head, Accumulator (&sums)[2]) const {
    MH_FOR (n, 2) {
      const Half x = half(thread, head, n);
      MH_FOR (r, 2) thread.unpack(x.x[r], sums[n].x[2 * r], sums[n].x[2 * r + 1], X{});
    }
  }
};
template <>
struct FragmentExchange<float> {
  static constexpr int count(int heads) { return heads; }
  FragmentA<float>* memory;  // (heads, 32 lanes)
  MH_DEVICE explicit FragmentExchange(FragmentA<float>* fragments) : memory(fragments) {}
  template <class Thread>
  MH_DEVICE void zero_padding(const Thread&, int) const {}
  template <class Thread>
  MH_DEVICE void put(const Thread& thread, int head, const Accumulator (&sums)[2]) const {
    FragmentA<float> x;
    round_to(thread, x, sums[0], sums[1]);
    memory[head * 32 + thread.lane()] = x;
  }
  template <class Thread>
  MH_DEVICE void get(const Thread& thread, int head, Accumulator (&sums)[2]) const {
    widen(thread, sums, memory[head * 32 + thread.lane()]);
  }
};

// Probabilities are exchanged with 11 bits even if T has 8: they are rounded to T only once, after mixing.
template <class T>
struct ExchangeType {
  using Probability = Fp16;
};
template <>
struct ExchangeType<float> {
  using Probability = float;
};

// The position of a thread: its strip of 16 rows, and its warp among the warps that share the strip.
struct WarpPosition {
  int strip, strip_warp, rows;  // rows: rows of the block
  int g, t;                     // row and pair of columns of the lane
  template <class Thread>
  MH_DEVICE WarpPosition(const Thread& thread, const HeadMixingPlan& plan)
      : strip(thread.warp() / plan.warps_per_strip),
        strip_warp(thread.warp() % plan.warps_per_strip),
        rows(16 * plan.strips),
        g(thread.lane() / 4),
        t(thread.lane() % 4) {}
};

// A lane's two queries of a strip in a pass with resident queries; `first` is the first query of the strip.
struct WarpQueries {
  int first, row, clamped[2];
  const float* matrix[2];  // or of the transposed matrix
  MH_DEVICE WarpQueries(const AttentionParams& a, const float* matrices, int64_t b, int from, int g)
      : first(from), row(from + g) {
    MH_FOR (r, 2) {
      clamped[r] = row + 8 * r < a.queries ? row + 8 * r : static_cast<int>(a.queries) - 1;
      matrix[r] = matrices + b * a.matrix_batch_stride + clamped[r] * a.matrix_query_stride;
    }
  }
};

// Loads `count` >= 1 elements of a matrix row for the warp's heads, then zeros; as vectors, if all rows are aligned and
// have whole vectors.
template <int kWarpHeads, class Thread>
MH_DEVICE void load_weights(const Thread& thread, float (&to)[kWarpHeads], const float* from, int count, bool vectors) {
  if (vectors) {
    thread.read(to, from);
  } else {
    MH_FOR (o, kWarpHeads) to[o] = o < count ? from[o] : 0;
  }
}
template <int kWarpHeads>
MH_DEVICE bool has_vectors(const float* matrix, int heads) {
  return heads % kWarpHeads == 0 && reinterpret_cast<uintptr_t>(matrix) % (4 * kWarpHeads) == 0;
}

// Computes probabilities from products of 16 queries and 16 keys of a head; if kSlopes, also slopes: probabilities
// times the derivative of the logits. lse2: log-sum-exp (log2) of a lane's two queries.
template <bool kSlopes, class Thread>
MH_DEVICE void to_probabilities(const Thread& thread, const AttentionParams& a, const WarpQueries& q, int key, int end,
                                const float (&lse2)[2], Accumulator (&p)[2],
                                [[maybe_unused]] Accumulator (&slopes)[2]) {
  apply_mask<false>(thread, a, end, q.first, key, p);
  dispatch_normaliser(a, [&](const auto& normaliser) {
    MH_FOR (n, 2)
      MH_FOR (i, 4) {
        float& x = p[n].x[i];
        const float product = x;
        x = thread.exp2(normaliser.logarithm(thread, product) - lse2[i / 2]);
        if constexpr (kSlopes) slopes[n].x[i] = normaliser.times_slope(thread, x, x, product);
      }
  });
}
// The same with the log-sum-exp (nats) of head j of batch row b.
template <class Thread>
MH_DEVICE void to_probabilities(const Thread& thread, const AttentionParams& a, int64_t b, int j, const WarpQueries& q,
                                int key, int end, const float* lse, Accumulator (&p)[2]) {
  const float* head_lse = lse + (b * a.in_heads + j) * a.queries;
  const float lse2[2] = {head_lse[q.clamped[0]] * kLog2E, head_lse[q.clamped[1]] * kLog2E};
  to_probabilities<false>(thread, a, q, key, end, lse2, p, p);
}

// Applies dropout to the tiles of heads first … end - 1. Not for tiles that are multiplied part by part: the decisions
// are equal for all parts, so the compiler would keep them for all heads in registers, and spill.
template <int kWarpHeads>
MH_DEVICE void drop_tiles(const AttentionParams& a, int64_t b, int first, int end, int row, int column,
                          Accumulator (&x)[kWarpHeads][2]) {
  MH_FOR (o, kWarpHeads)
    if (first + o < end) drop(a, b, first + o, row, column, x[o]);
}

// Computes mixed[o] = Σ_h weights[h, o] times the exchanged fragment of head h, with queries as rows of a fragment.
// row_stride: of the matrix; warp_head, end: the heads of the weights.
template <int kWarpHeads, class Thread, class X>
MH_DEVICE void mix_rows(const Thread& thread, Accumulator (&mixed)[kWarpHeads][2], const FragmentExchange<X>& exchange,
                        int heads, const float* const (&matrix)[2], int row_stride, int warp_head, int end) {
  if (warp_head >= end) return;
  const bool vectors = has_vectors<kWarpHeads>(matrix[0], row_stride);
  MH_ROLLED
  for (int h = 0; h < heads; ++h) {
    float weights[2][kWarpHeads];
    MH_FOR (r, 2) load_weights(thread, weights[r], matrix[r] + h * row_stride + warp_head, end - warp_head, vectors);
    Accumulator x[2];
    exchange.get(thread, h, x);
    MH_FOR (o, kWarpHeads)
      MH_FOR (n, 2)
        MH_FOR (e, 4) mixed[o][n].x[e] += weights[e / 2][o] * x[n].x[e];
  }
}

// The same with queries as columns: matrix_of(c, e) returns the matrix of column e of fragment c.
template <int kWarpHeads, class Thread, class X, class MatrixOf>
MH_DEVICE void mix_columns(const Thread& thread, Accumulator (&mixed)[kWarpHeads][2],
                           const FragmentExchange<X>& exchange, int heads, const MatrixOf& matrix_of, int row_stride,
                           int warp_head, int end) {
  if (warp_head >= end) return;
  const float* const matrix[2][2] = {{matrix_of(0, 0), matrix_of(0, 1)}, {matrix_of(1, 0), matrix_of(1, 1)}};
  const bool vectors = has_vectors<kWarpHeads>(matrix[0][0], row_stride);
  MH_ROLLED
  for (int h = 0; h < heads; ++h) {
    float weights[2][2][kWarpHeads];
    MH_FOR (c, 2)
      MH_FOR (e, 2)
        load_weights(thread, weights[c][e], matrix[c][e] + h * row_stride + warp_head, end - warp_head, vectors);
    Accumulator x[2];
    exchange.get(thread, h, x);
    MH_FOR (o, kWarpHeads)
      MH_FOR (n, 2)
        MH_FOR (e, 4) mixed[o][n].x[e] += weights[n][e % 2][o] * x[n].x[e];
  }
}

// Returns the largest power of two not above a number, or 1 for 0: the scale of weights in fp16. At most 2^126, so that
// it has an inverse.
MH_DEVICE float floor_pow2(float largest) {
  uint32_t bits;
  memcpy(&bits, &largest, sizeof bits);
  bits &= 0x7F800000u;
  if (bits > 0x7E800000u) bits = 0x7E800000u;
  float power;
  memcpy(&power, &bits, sizeof power);
  return power > 0 ? power : 1;
}
// Returns the inverse of a power of two between 2^-126 and 2^126.
MH_DEVICE float inverse_pow2(float power) {
  uint32_t bits;
  memcpy(&bits, &power, sizeof bits);
  bits = 0x7F000000u - bits;
  memcpy(&power, &bits, sizeof power);
  return power;
}
// Returns floor_pow2() of the largest of `count` elements.
MH_DEVICE float floor_pow2(const float* elements, int64_t stride, int count) {
  float largest = 0;
  for (int i = 0; i < count; ++i) largest = fmaxf(largest, fabsf(elements[i * stride]));
  return floor_pow2(largest);
}

// A mixing matrix shared by all queries of a batch row, which mixes 16-bit fragments on the tensor cores: adjacent half
// fragments of two heads, times their weights multiplied by the identity matrix, one above the other. A column of the
// matrix is scaled by its largest element to be in the range of fp16.
template <class X, int kWarpHeads>
struct SharedMatrix {
  const uint32_t* elements;  // (heads rounded up to even, out_heads): each element twice; then scales (out_heads)
  int heads, out_heads;      // out_heads: output heads of the block
  uint32_t identity;         // a lane's part of two columns of the identity matrix
  bool shared;               // whether the matrix is in shared memory

  // matrix: (heads, row_stride), or null. block_head, warp_head: first heads of the block and of the warp. row_offset:
  // rows of other weights stored before these. Called by all threads of the block; the weights are valid after the next
  // barrier.
  template <class Thread>
  MH_DEVICE SharedMatrix(const Thread& thread, const HeadMixingPlan& plan, void* memory, const float* matrix, int from,
                         int row_stride, int block_head, int warp_head, int row_offset = 0)
      : heads(from),
        out_heads(plan.warps_per_strip * kWarpHeads),
        identity(thread.lane() / 4 / 2 != thread.lane() % 4 ? 0
                 : thread.lane() / 4 % 2 == 0               ? 0xFFFFu
                                                            : 0xFFFF0000u),
        shared(sizeof(X) == 2 && matrix != nullptr) {
    auto* const matrix_memory =
        reinterpret_cast<uint32_t*>(static_cast<char*>(memory) + plan.shared_bytes - plan.weight_bytes) +
        row_offset * out_heads;
    elements = matrix_memory + warp_head - block_head;
    if constexpr (sizeof(X) == 2) {
      if (!shared) return;
      const int rows = rows_of_weights(heads) - 1;
      MH_ROLLED
      for (int i = thread.index(); i < rows * out_heads; i += thread.threads()) {
        const int row = i / out_heads, column = i % out_heads;
        const bool valid = row < heads && block_head + column < row_stride;
        float scale = 1;
        if constexpr (std::is_same_v<X, Fp16>)
          scale = valid ? floor_pow2(matrix + block_head + column, row_stride, heads) : 1;
        const float x = valid ? matrix[row * row_stride + block_head + column] / scale : 0;
        matrix_memory[i] = thread.pack(x, x, X{});
        if (row == 0) reinterpret_cast<float*>(matrix_memory)[rows * out_heads + column] = scale;
      }
    }
  }

  // Mixes without applying the scales.
  template <class Thread>
  MH_DEVICE void mix(const Thread& thread, Accumulator (&mixed)[kWarpHeads][2],
                     const FragmentExchange<X>& exchange) const {
    if constexpr (sizeof(X) == 2) {
      const auto* from = reinterpret_cast<const FragmentA<X>*>(exchange.memory) + thread.lane();
      const uint32_t* weights = elements;
      MH_ROLLED
      for (int h = 0; h < heads; h += 2, from += 2 * 32, weights += 2 * out_heads) {
        const FragmentA<X> left[2] = {from[0], from[32]};
        const auto upper = *reinterpret_cast<const WarpElements*>(weights),
                   lower = *reinterpret_cast<const WarpElements*>(weights + out_heads);
        MH_FOR (o, kWarpHeads) {
          const uint32_t right[2] = {upper.x[o] & identity, lower.x[o] & identity};
          MH_FOR (n, 2) thread.multiply(mixed[o][n].x, left[n].x, right, X{});
        }
      }
    }
  }
  // Returns the scale of mixed head o.
  MH_DEVICE float scale(int o) const {
    if (!std::is_same_v<X, Fp16> || !shared) return 1;
    return reinterpret_cast<const float*>(elements)[(rows_of_weights(heads) - 1) * out_heads + o];
  }

 private:
  struct alignas(4 * kWarpHeads) WarpElements {
    uint32_t x[kWarpHeads];
  };
};

// Stores the warps' results through shared memory, which has room for plan.concurrent_stores warps of each strip at a
// time: store(index among them).
template <class Thread, class Store>
MH_DEVICE void store_in_turns(const Thread& thread, const HeadMixingPlan& plan, const WarpPosition& warp,
                              const Store& store) {
  thread.template wait_group<0>();
  thread.barrier();
  for (int turn = 0; turn < plan.warps_per_strip; turn += plan.concurrent_stores) {
    if (warp.strip_warp >= turn && warp.strip_warp < turn + plan.concurrent_stores) store(warp.strip_warp - turn);
    thread.barrier();
  }
}

}  // namespace mh::kernels
