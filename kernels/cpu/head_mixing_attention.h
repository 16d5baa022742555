// Attention with head mixing after the softmax (Mixhead, Zhang et al. 2022, and any linear map across heads) on a CPU,
// for query heads j and value heads i:
//
//   P_j = softmax(scale * Q_j K_jᵀ), or another normaliser;  P̄_i = Σ_j m[j, i] P_j;  out_i = P̄_i V_i
//
// The soft cap, the position bias and the sinks of AttentionParams belong to the query heads j: they act before mixing.
// Sums are accumulated in fp32; products by Bf16Gemm take bf16 operands.
//
// Tiling: a tile has 32 to 64 queries, all keys and all heads. If its probabilities would take more than 8 times the L2
// cache, a tile has only a span of keys, and the forward pass reads the keys twice: first to compute the log-sum-exp of
// each query, then to compute the probabilities. The backward pass recomputes the probabilities from the log-sum-exp:
//
//   dP̄_i = dO_i V_iᵀ;  G[j, i] = Σ_s P_j dP̄_i, the gradient of m, summed over the keys s
//   dS_j = P_j (Σ_i m[j, i] dP̄_i - Σ_i m[j, i] G[j, i]), the gradient of the logits
//
// If a tile has a span of keys, the backward pass also reads the keys twice: first to compute G, then to compute dS.
//
// A thread computes query tiles of a batch row. Its matrix products have register tiles (cpu/products.h), or use
// Bf16Gemm, 64 keys at a time; softmax and mixing compute all heads of one query, in chunks of 128 keys. The scratch
// memory of a thread holds mainly one tile, or two in the backward pass, of 4 * queries * (heads * span + 16) bytes.
// For 16 heads of size 64 and 512 positions, a tile of 32 queries takes 1026 KiB, and the scratch memory 1295 KiB in
// the forward pass and 2663 KiB in the backward pass, and 4 KiB more with products in bf16. The packed keys and values
// of a batch row, which its tiles share, take 4 MiB in the forward pass and 6 MiB in the backward pass, and dK and dV
// take 2 MiB each for each thread (QueryShare). A soft cap adds its derivatives for one query and all heads to the
// scratch memory of the backward pass. cpu/head_mixing/decode.h describes the tiling of the decode path.
//
// The log-sum-exp has a rounding error of 2^-24 times the largest logit. The recomputed probabilities are therefore
// divided by their sum, including the sink; otherwise the gradients of a query's logits, and of its sink, would not sum
// to zero if the logits are large.
#pragma once

#include <cstdint>

#include "attention_params.h"
#include "cpu/bf16_gemm.h"
#include "cpu/simd.h"

namespace mh::kernels {

// A tensor (heads, length, size) of one batch row: the vector of head h at position t starts at
// data + h * head_stride + t * row_stride. T is float or uint16_t (bf16). With cache_row_of (length), which only the
// decode path supports, data is a key/value cache with batch stride batch_stride, and position t is in cache row
// cache_row_of[t].
template <class T>
struct HeadsView {
  T* data;
  int64_t head_stride, row_stride;
  const int32_t* cache_row_of = nullptr;
  int64_t batch_stride = 0;
  T* at(int64_t h, int64_t t) const {
    return data + h * head_stride + t * row_stride + (cache_row_of != nullptr ? cache_row_of[t] * batch_stride : 0);
  }
};

// The tensors of one batch row for head_mixing_forward() and head_mixing_backward().
template <class T>
struct BatchRowTensors {
  HeadsView<const T> q, k, v;    // k and v are read by the decode path only; the other passes read `packed_kv`
  const float* packed_kv;        // keys and values of all heads, written by head_mixing_pack()
  HeadsView<T> out;              // (value_heads, queries, value_size), written by the forward pass
  float* lse;                    // (heads, queries): log-sum-exp, nats; +inf for a fully masked row
  HeadsView<const T> dout = {};  // gradient of out; read by the backward pass, which writes the members below
  HeadsView<T> dq = {};
  // Gradients in fp32 from the query tiles of one QueryShare; overwritten, not accumulated. dk (heads, keys, key_size)
  // and dv (value_heads, keys, value_size), where sizes are padded to a multiple of 16 and keys to a multiple of 128
  // (head_mixing_key_floats, head_mixing_value_floats). dm: (heads, value_heads) with a shared matrix; with a matrix
  // for each query, (queries, heads, value_heads), where only the queries of the QueryShare are written. du, dv_bias
  // (heads, key_size) and dr (heads, distances, key_size): gradients with respect to u, v and r of RelativeParams, with
  // key_size padded to a multiple of 16; not written without relative positions.
  float *dk = nullptr, *dv = nullptr, *dm = nullptr, *du = nullptr, *dv_bias = nullptr, *dr = nullptr;
  // Gradients, from the query tiles of one QueryShare, of the sinks (heads) and of PositionBiasParams::bias (heads,
  // num_distances); overwritten. Null: not computed.
  float *dsinks = nullptr, *dposition_bias = nullptr;
};

// The query tiles of a batch row that one thread computes: share `index` of `count` shares.
struct QueryShare {
  int64_t index = 0, count = 1;
};

// The head_mixing_* functions below, compiled for one instruction set (cpu/simd.h).
template <SimdLevel, class T>
struct HeadMixingLoops {
  static void pack(const AttentionParams& params, bool backward, int64_t head, HeadsView<const T> k,
                   HeadsView<const T> v, float* packed_kv);
  static void forward(const AttentionParams& params, const QueryShare& share, const BatchRowTensors<T>& tensors,
                      float* scratch);
  static void backward(const AttentionParams& params, const QueryShare& share, const BatchRowTensors<T>& tensors,
                       float* scratch);
  static void sum_partials(const float* from, int64_t num_partials, int64_t partial_stride, int64_t length,
                           int64_t size, HeadsView<T> to);
  static void decode_logits(const AttentionParams& params, int64_t head, HeadsView<const T> q, HeadsView<const T> k,
                            float* shared_scratch);
  static void decode_mix(const AttentionParams& params, float* lse, float* shared_scratch);
  static void decode_values(const AttentionParams& params, int64_t head, HeadsView<const T> v, HeadsView<T> out,
                            float* shared_scratch);
};

// Returns the number of queries of a tile; not used by the decode path. It depends only on the tensor sizes and the
// cache size, not on the number of threads, since it determines the order of summation.
int64_t head_mixing_tile_rows(const AttentionParams& params);

// Returns the number of floats of the packed keys and values of a batch row, which all query tiles of a forward or
// backward pass share; 0 for the decode path.
int64_t head_mixing_pack_floats(const AttentionParams& params, bool backward);
// Packs the keys of query head `head`, or, if `head >= params.heads`, the values of value head `head - params.heads`.
// Must be called for all params.heads + params.value_heads heads before the forward or backward pass.
template <class T>
void head_mixing_pack(const AttentionParams& params, bool backward, int64_t head, HeadsView<const T> k,
                      HeadsView<const T> v, float* packed_kv) {
  dispatch_simd_level(
      [&](auto simd_level) { HeadMixingLoops<simd_level, T>::pack(params, backward, head, k, v, packed_kv); });
}

// Return the number of floats of scratch memory for one call of head_mixing_forward() or head_mixing_backward(). The
// scratch memory must be aligned to 64 bytes.
int64_t head_mixing_forward_scratch_floats(const AttentionParams& params);
int64_t head_mixing_backward_scratch_floats(const AttentionParams& params);
// Return the sizes of BatchRowTensors::dk and BatchRowTensors::dv, in floats.
int64_t head_mixing_key_floats(const AttentionParams& params);
int64_t head_mixing_value_floats(const AttentionParams& params);

// Compute the forward and the backward pass of the query tiles of `share`. params.mixing_matrix: the shared matrix of
// the batch row, or the matrix of its query 0.
template <class T>
void head_mixing_forward(const AttentionParams& params, const QueryShare& share, const BatchRowTensors<T>& tensors,
                         float* scratch) {
  dispatch_simd_level(
      [&](auto simd_level) { HeadMixingLoops<simd_level, T>::forward(params, share, tensors, scratch); });
}
template <class T>
void head_mixing_backward(const AttentionParams& params, const QueryShare& share, const BatchRowTensors<T>& tensors,
                          float* scratch) {
  dispatch_simd_level(
      [&](auto simd_level) { HeadMixingLoops<simd_level, T>::backward(params, share, tensors, scratch); });
}

// Sums the gradients of one head that all QueryShares of a backward pass wrote, and writes the sum, rounded to T, to
// head 0 of `to` (length, size). from: `num_partials` matrices (length, size padded to a multiple of 16), which start
// `partial_stride` floats apart.
template <class T>
void head_mixing_sum_partials(const float* from, int64_t num_partials, int64_t partial_stride, int64_t length,
                              int64_t size, HeadsView<T> to) {
  dispatch_simd_level([&](auto simd_level) {
    HeadMixingLoops<simd_level, T>::sum_partials(from, num_partials, partial_stride, length, size, to);
  });
}

// Returns whether the decode path serves a call with these parameters: at most kMaxDecodeQueries queries
// (cpu/attention.h), without gradient, dropout or relative positions. The decode path reads keys and values in place.
// head_mixing_forward() with share 0 computes all heads of a batch row. Alternatively several threads share a batch row
// in three steps, with a barrier after each step and one scratch memory of head_mixing_decode_scratch_floats() floats:
// head_mixing_decode_logits() for each query head; head_mixing_decode_mix() once, which writes lse (heads, queries);
// head_mixing_decode_values() for each value head.
bool is_head_mixing_decode(const AttentionParams& params);
int64_t head_mixing_decode_scratch_floats(const AttentionParams& params);
template <class T>
void head_mixing_decode_logits(const AttentionParams& params, int64_t head, HeadsView<const T> q, HeadsView<const T> k,
                               float* shared_scratch) {
  dispatch_simd_level(
      [&](auto simd_level) { HeadMixingLoops<simd_level, T>::decode_logits(params, head, q, k, shared_scratch); });
}
inline void head_mixing_decode_mix(const AttentionParams& params, float* lse, float* shared_scratch) {
  dispatch_simd_level(
      [&](auto simd_level) { HeadMixingLoops<simd_level, float>::decode_mix(params, lse, shared_scratch); });
}
template <class T>
void head_mixing_decode_values(const AttentionParams& params, int64_t head, HeadsView<const T> v, HeadsView<T> out,
                               float* shared_scratch) {
  dispatch_simd_level(
      [&](auto simd_level) { HeadMixingLoops<simd_level, T>::decode_values(params, head, v, out, shared_scratch); });
}

}  // namespace mh::kernels
