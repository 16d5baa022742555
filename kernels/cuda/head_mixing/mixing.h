// Mixing of heads in the registers of a warp. The warps that share a row tile exchange fragments of
// probabilities or gradients through shared memory, so that each fragment is computed by one warp only. Each warp then
// computes its out heads as sums of all fragments, weighted by the mixing matrix.
//
// A matrix that all queries share mixes 16-bit fragments on the tensor cores (SharedMatrix). A matrix for each query,
// and fp32 fragments, mix in fp32 (mix_rows, mix_columns).
#pragma once

#include <cstring>

#include "cuda/head_mixing/pipeline.h"

namespace mh::kernels {

// The exchanged fragments (16, 16) of the heads of a row tile, in shared memory, in the order of the lanes that hold
// the elements. For 16-bit elements, half fragments of two heads are adjacent, so that together they are an operand A
// of the tensor cores.
template <class X>
struct FragmentExchange {
  // Returns the number of fragments in memory: `heads` rounded up to even, since fragments are stored in pairs.
  static constexpr int num_fragments(int heads) { return round_up(heads, 2); }
  struct alignas(8) FragmentHalf {
    uint32_t x[2];
  };
  FragmentHalf* memory;  // (pairs of heads, 2 halves of a fragment, 32 lanes, 2 heads)
  MH_DEVICE explicit FragmentExchange(FragmentA<X>* fragments) : memory(reinterpret_cast<FragmentHalf*>(fragments)) {}
  template <class Thread>
  MH_DEVICE FragmentHalf& fragment_half(const Thread& thread, int head, int n) const {
    return memory[((head / 2 * 2 + n) * 32 + thread.lane()) * 2 + head % 2];
  }
  // If the number of heads is odd, sets the fragment that is paired with the last head to zero. Called by one warp of a
  // row tile.
  template <class Thread>
  MH_DEVICE void zero_padding(const Thread& thread, int heads) const {
    if (heads % 2 == 0) return;
    MH_FOR (n, 2) fragment_half(thread, heads, n) = {};
  }
  template <class Thread>
  MH_DEVICE void put(const Thread& thread, int head, const Accumulator (&accum)[2]) const {
    MH_FOR (n, 2)
      fragment_half(thread, head, n) = {thread.pack(accum[n].x[0], accum[n].x[1], X{}),
                                        thread.pack(accum[n].x[2], accum[n].x[3], X{})};
  }
  template <class Thread>
  MH_DEVICE void get(const Thread& thread, int head, Accumulator (&accum)[2]) const {
    MH_FOR (n, 2) {
      const FragmentHalf x = fragment_half(thread, head, n);
      MH_FOR (r, 2) thread.unpack(x.x[r], accum[n].x[2 * r], accum[n].x[2 * r + 1], X{});
    }
  }
};
template <>
struct FragmentExchange<float> {
  static constexpr int num_fragments(int heads) { return heads; }
  FragmentA<float>* memory;  // (heads, 32 lanes)
  MH_DEVICE explicit FragmentExchange(FragmentA<float>* fragments) : memory(fragments) {}
  template <class Thread>
  MH_DEVICE void zero_padding(const Thread&, int) const {}
  template <class Thread>
  MH_DEVICE void put(const Thread& thread, int head, const Accumulator (&accum)[2]) const {
    FragmentA<float> x;
    round_to_fragment_a(thread, x, accum[0], accum[1]);
    memory[head * 32 + thread.lane()] = x;
  }
  template <class Thread>
  MH_DEVICE void get(const Thread& thread, int head, Accumulator (&accum)[2]) const {
    widen(thread, accum, memory[head * 32 + thread.lane()]);
  }
};

// The type of exchanged probabilities. fp16, with 11 significant bits, is used even for bf16 tensors (8 bits), so that
// probabilities are rounded to bf16 only once, after mixing.
template <class T>
struct ExchangeType {
  using Probability = Fp16;
};
template <>
struct ExchangeType<float> {
  using Probability = float;
};

// The position of a thread in its block.
struct WarpPosition {
  int row_tile, row_tile_warp;  // index of the row tile in the block; index of the warp in the row tile
  int rows_per_block;           // rows of the block
  int g, t;                     // lane 4 g + t holds rows g and g + 8 of a fragment (cuda/fragment.h)
  template <class Thread>
  MH_DEVICE WarpPosition(const Thread& thread, const HeadMixingPlan& plan)
      : row_tile(thread.warp() / plan.warps_per_row_tile),
        row_tile_warp(thread.warp() % plan.warps_per_row_tile),
        rows_per_block(16 * plan.num_row_tiles),
        g(thread.lane() / 4),
        t(thread.lane() % 4) {}
};

// The heads that a block computes: all query heads or all value heads, or a part if several blocks divide the heads.
struct HeadBlock {
  int first;      // first head of the block
  int warp_head;  // first head of the warp; past the end if the warp has no head
  int end;        // index after the last head of the block
  MH_DEVICE HeadRange range() const { return {first, end}; }
};

// A lane's two queries, in kernels with resident queries.
struct LaneQueries {
  int first, query;        // first query of the row tile; first query of the lane, whose second query is query + 8
  int clamped_queries[2];  // the lane's two queries, clamped to the last query of the batch row
  const float* matrix[2];  // mixing matrices of the two queries, from `matrices` of the constructor
  MH_DEVICE LaneQueries(const AttentionParams& params, const float* matrices, int64_t b, int first_query, int g)
      : first(first_query), query(first_query + g) {
    MH_FOR (r, 2) {
      clamped_queries[r] = query + 8 * r < params.queries ? query + 8 * r : static_cast<int>(params.queries) - 1;
      matrix[r] = matrices + b * params.matrix_batch_stride + clamped_queries[r] * params.matrix_query_stride;
    }
  }
};

// Loads the elements of a matrix row for the kWarpHeads heads of a warp, of which the first `count` exist; the elements
// of other heads become zero. count >= 1. use_vector: loads one vector, which requires has_aligned_vectors().
template <int kWarpHeads, class Thread>
MH_DEVICE void load_weights(const Thread& thread, float (&to)[kWarpHeads], const float* from, int count,
                            bool use_vector) {
  if (use_vector) {
    thread.read(to, from);
  } else {
    MH_FOR (o, kWarpHeads) to[o] = o < count ? from[o] : 0;
  }
}
// Returns whether the matrix is aligned to vectors of kWarpHeads elements, and each of its rows, of `heads` elements,
// consists of whole vectors.
template <int kWarpHeads>
MH_DEVICE bool has_aligned_vectors(const float* matrix, int heads) {
  return heads % kWarpHeads == 0 && reinterpret_cast<uintptr_t>(matrix) % (4 * kWarpHeads) == 0;
}

// Replaces p (16, 16), the products of 16 queries and the 16 keys of a tile, by probabilities. If kComputeSlopes, also
// computes `slopes`: probability * derivative of the logit with respect to the product. lse2: log-sum-exp in base 2 of
// a lane's two queries.
template <bool kComputeSlopes, class Thread>
MH_DEVICE void to_probabilities(const Thread& thread, const AttentionParams& params, const LaneQueries& q,
                                StreamedTile tile, const float (&lse2)[2], Accumulator (&p)[2],
                                [[maybe_unused]] Accumulator (&slopes)[2]) {
  apply_mask<false>(thread, params, tile.end, q.first, tile.first, p);
  dispatch_normaliser(params, [&](const auto& normaliser) {
    MH_FOR (n, 2)
      MH_FOR (i, 4) {
        float& x = p[n].x[i];
        const float product = x;
        x = thread.exp2(normaliser.log2_numerator(thread, product) - lse2[i / 2]);
        if constexpr (kComputeSlopes) slopes[n].x[i] = normaliser.multiply_slope(thread, x, x, product);
      }
  });
}
// Replaces p (16, 16), the products of 16 queries and the 16 keys of a tile, by probabilities. head_lse (queries):
// log-sum-exp of the query head, nats.
template <class Thread>
MH_DEVICE void to_probabilities(const Thread& thread, const AttentionParams& params, const LaneQueries& q,
                                StreamedTile tile, const float* head_lse, Accumulator (&p)[2]) {
  const float lse2[2] = {head_lse[q.clamped_queries[0]] * kLog2E, head_lse[q.clamped_queries[1]] * kLog2E};
  to_probabilities<false>(thread, params, q, tile, lse2, p, p);
}

// The position of a lane's first element of a tile (queries, keys): its batch row, query and key.
struct LanePosition {
  int64_t b;
  int query, key;
};

// Applies dropout to the tiles x of the heads of a warp. Must be called once for a tile, not for each product that
// reads a part of the tile: the dropout masks of these products would be equal, so the compiler would keep the masks of
// all heads in registers, and spill.
template <int kWarpHeads>
MH_DEVICE void apply_dropout_to_tiles(const AttentionParams& params, LanePosition position, const HeadBlock& heads,
                                      Accumulator (&x)[kWarpHeads][2]) {
  MH_FOR (o, kWarpHeads)
    if (heads.warp_head + o < heads.end)
      apply_dropout(params, position.b, heads.warp_head + o, position.query, position.key, x[o]);
}

// The shape of a matrix that mixes num_in_heads heads to num_out_heads heads: query heads to value heads, or, if it is
// the transposed matrix of the backward pass, value heads to query heads.
struct MixShape {
  int num_in_heads, num_out_heads;
};

// Computes mix_out[o] += Σ_h matrix[h, block.warp_head + o] x_h, where x_h is the exchanged fragment of head h, whose
// rows are queries. matrix: the matrices of a lane's two queries. block: the out heads of the block.
template <int kWarpHeads, class Thread, class X>
MH_DEVICE void mix_rows(const Thread& thread, Accumulator (&mix_out)[kWarpHeads][2],
                        const FragmentExchange<X>& exchange, const float* const (&matrix)[2], MixShape shape,
                        const HeadBlock& block) {
  if (block.warp_head >= block.end) return;
  const bool use_vector = has_aligned_vectors<kWarpHeads>(matrix[0], shape.num_out_heads);
  MH_ROLLED
  for (int h = 0; h < shape.num_in_heads; ++h) {
    float weights[2][kWarpHeads];
    MH_FOR (r, 2)
      load_weights(thread, weights[r], matrix[r] + h * shape.num_out_heads + block.warp_head,
                   block.end - block.warp_head, use_vector);
    Accumulator x[2];
    exchange.get(thread, h, x);
    MH_FOR (o, kWarpHeads)
      MH_FOR (n, 2)
        MH_FOR (e, 4) mix_out[o][n].x[e] += weights[e / 2][o] * x[n].x[e];
  }
}

// Computes mix_out[o] += Σ_h matrix[h, block.warp_head + o] x_h, where x_h is the exchanged fragment of head h, whose
// columns are queries. matrix_of(c, e) returns the matrix of the query of column 8 c + 2 (lane % 4) + e. block: the
// out heads of the block.
template <int kWarpHeads, class Thread, class X, class MatrixOf>
MH_DEVICE void mix_columns(const Thread& thread, Accumulator (&mix_out)[kWarpHeads][2],
                           const FragmentExchange<X>& exchange, const MatrixOf& matrix_of, MixShape shape,
                           const HeadBlock& block) {
  if (block.warp_head >= block.end) return;
  const float* const matrix[2][2] = {{matrix_of(0, 0), matrix_of(0, 1)}, {matrix_of(1, 0), matrix_of(1, 1)}};
  const bool use_vector = has_aligned_vectors<kWarpHeads>(matrix[0][0], shape.num_out_heads);
  MH_ROLLED
  for (int h = 0; h < shape.num_in_heads; ++h) {
    float weights[2][2][kWarpHeads];
    MH_FOR (c, 2)
      MH_FOR (e, 2)
        load_weights(thread, weights[c][e], matrix[c][e] + h * shape.num_out_heads + block.warp_head,
                     block.end - block.warp_head, use_vector);
    Accumulator x[2];
    exchange.get(thread, h, x);
    MH_FOR (o, kWarpHeads)
      MH_FOR (n, 2)
        MH_FOR (e, 4) mix_out[o][n].x[e] += weights[n][e % 2][o] * x[n].x[e];
  }
}

// Returns the largest power of two that is at most `max_magnitude`, but not above 2^126, so that it has an inverse; 1
// for 0 and for subnormal numbers. Used as the scale of fp16 weights.
MH_DEVICE float floor_pow2(float max_magnitude) {
  uint32_t bits;
  memcpy(&bits, &max_magnitude, sizeof bits);
  bits &= 0x7F800000u;
  if (bits > 0x7E800000u) bits = 0x7E800000u;
  float power;
  memcpy(&power, &bits, sizeof power);
  return power > 0 ? power : 1;
}
// Returns the inverse of a power of two between 2^-126 and 2^126.
MH_DEVICE float reciprocal_of_pow2(float power) {
  uint32_t bits;
  memcpy(&bits, &power, sizeof bits);
  bits = 0x7F000000u - bits;
  memcpy(&power, &bits, sizeof power);
  return power;
}
// Returns floor_pow2() of the largest magnitude of `count` elements, `stride` elements apart.
MH_DEVICE float floor_pow2(const float* elements, int64_t stride, int count) {
  float max_magnitude = 0;
  for (int i = 0; i < count; ++i) max_magnitude = fmaxf(max_magnitude, fabsf(elements[i * stride]));
  return floor_pow2(max_magnitude);
}

// A mixing matrix (heads, num_out_heads) that all queries of a batch row share, in shared memory. It mixes 16-bit
// fragments on the tensor cores: operand A (16, 16) is two adjacent half fragments (16, 8) of heads h and h + 1;
// operand B (16, 8) is two identity matrices (8, 8), one above the other, multiplied by the weights of head h
// and of head h + 1. In fp16, each column of the matrix is divided by a power of two (floor_pow2 of its largest
// magnitude), so that its elements are in range.
template <class X, int kWarpHeads>
struct SharedMatrix {
  // (heads rounded up to even, num_out_heads), each weight twice in a word; then scales (num_out_heads). The pointer is
  // to the column of the warp's first out head.
  const uint32_t* elements;
  int heads, num_out_heads;  // number of heads that are mixed; number of out heads of the block
  uint32_t diagonal_bits;    // mask: the bits of the diagonal in a lane's word of operand B
  bool can_mix;              // whether shared memory has the matrix; otherwise mix_rows() or mix_columns() must mix

  // Copies the columns of the block from `matrix` to shared memory, unless X is float or `matrix` is null (the queries
  // share no matrix). out_block: the out heads of the block. row_offset: number of rows of another SharedMatrix that
  // precede this matrix in memory. Called by all threads of a block; the weights are valid after the next barrier.
  template <class Thread>
  MH_DEVICE SharedMatrix(const Thread& thread, const HeadMixingPlan& plan, void* memory, const float* matrix,
                         MixShape shape, const HeadBlock& out_block, int row_offset = 0)
      : heads(shape.num_in_heads),
        num_out_heads(plan.warps_per_row_tile * kWarpHeads),
        diagonal_bits(thread.lane() / 4 / 2 != thread.lane() % 4 ? 0
                      : thread.lane() / 4 % 2 == 0               ? 0xFFFFu
                                                                 : 0xFFFF0000u),
        can_mix(sizeof(X) == 2 && matrix != nullptr) {
    auto* const matrix_memory =
        reinterpret_cast<uint32_t*>(static_cast<char*>(memory) + plan.shared_bytes - plan.weight_bytes) +
        row_offset * num_out_heads;
    elements = matrix_memory + out_block.warp_head - out_block.first;
    if constexpr (sizeof(X) == 2) {
      if (!can_mix) return;
      const int rows = num_weight_rows(heads) - 1;
      MH_ROLLED
      for (int i = thread.index(); i < rows * num_out_heads; i += thread.threads()) {
        const int row = i / num_out_heads, column = i % num_out_heads;
        const bool is_valid = row < heads && out_block.first + column < shape.num_out_heads;
        float scale = 1;
        if constexpr (std::is_same_v<X, Fp16>)
          scale = is_valid ? floor_pow2(matrix + out_block.first + column, shape.num_out_heads, heads) : 1;
        const float x = is_valid ? matrix[row * shape.num_out_heads + out_block.first + column] / scale : 0;
        matrix_memory[i] = thread.pack(x, x, X{});
        if (row == 0) reinterpret_cast<float*>(matrix_memory)[rows * num_out_heads + column] = scale;
      }
    }
  }

  // Adds to mix_out[o] the weighted sum of the fragments of all heads, divided by scale(o). Requires can_mix.
  template <class Thread>
  MH_DEVICE void mix(const Thread& thread, Accumulator (&mix_out)[kWarpHeads][2],
                     const FragmentExchange<X>& exchange) const {
    if constexpr (sizeof(X) == 2) {
      const auto* from = reinterpret_cast<const FragmentA<X>*>(exchange.memory) + thread.lane();
      const uint32_t* weights = elements;
      MH_ROLLED
      for (int h = 0; h < heads; h += 2, from += 2 * 32, weights += 2 * num_out_heads) {
        const FragmentA<X> frag_a[2] = {from[0], from[32]};
        const auto upper = *reinterpret_cast<const WarpElements*>(weights),
                   lower = *reinterpret_cast<const WarpElements*>(weights + num_out_heads);
        MH_FOR (o, kWarpHeads) {
          const uint32_t frag_b[2] = {upper.x[o] & diagonal_bits, lower.x[o] & diagonal_bits};
          MH_FOR (n, 2) thread.multiply(mix_out[o][n].x, frag_a[n].x, frag_b, X{});
        }
      }
    }
  }
  // Returns the scale of the warp's out head o, by which the caller must multiply the result of mix().
  MH_DEVICE float scale(int o) const {
    if (!std::is_same_v<X, Fp16> || !can_mix) return 1;
    return reinterpret_cast<const float*>(elements)[(num_weight_rows(heads) - 1) * num_out_heads + o];
  }

 private:
  struct alignas(4 * kWarpHeads) WarpElements {
    uint32_t x[kWarpHeads];
  };
};

// Calls store(n) once for each warp, to store its results through shared memory, which has room for
// plan.num_concurrent_stores warps of each row tile at a time. n: index of the warp among the warps of its row tile
// that store at the same time. Called by all threads of a block.
template <class Thread, class Store>
MH_DEVICE void store_in_rounds(const Thread& thread, const HeadMixingPlan& plan, const WarpPosition& warp,
                               const Store& store) {
  thread.template wait_group<0>();
  thread.barrier();
  for (int round_begin = 0; round_begin < plan.warps_per_row_tile; round_begin += plan.num_concurrent_stores) {
    if (warp.row_tile_warp >= round_begin && warp.row_tile_warp < round_begin + plan.num_concurrent_stores)
      store(warp.row_tile_warp - round_begin);
    thread.barrier();
  }
}

}  // namespace mh::kernels
