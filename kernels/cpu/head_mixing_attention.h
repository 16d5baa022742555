// Attention with head mixing after the softmax (Mixhead, Zhang et al. 2022, and any linear map across heads),
// accumulated in fp32 for all types, with operands of bf16 products in bf16: P_j = softmax(scale * Q_j K_jᵀ), or
// another normaliser, P̄_i = Σ_j m[j, i] P_j, out_i = P̄_i V_i.
//
// Tiling: a few queries against all keys of all heads at a time. If the probabilities do not fit in the cache, a span
// of keys at a time, in two passes: the first computes each query's log-sum-exp, the second its probabilities. The
// backward pass recomputes the probabilities from the log-sum-exp. With dP̄_i = dO_i V_iᵀ and G[j, i] = Σ_s P_j dP̄_i,
// the gradient of m, the gradient of the logits is P_j (Σ_i m[j, i] dP̄_i - Σ_i m[j, i] G[j, i]); with spans, the first
// of two passes computes G. The log-sum-exp is rounded, by 2^-24 of the largest logit, so the probabilities are divided
// by their sum; otherwise the gradients of large logits would not sum to zero.
#pragma once

#include <cstdint>

#include "attention_params.h"
#include "cpu/bf16_gemm.h"
#include "cpu/simd.h"

namespace mh::kernels {

// A tensor (heads, length, size): element (h, t) starts at data + h * head_stride + t * row_stride. T is float or
// uint16_t (bf16). With a table, position t is in row table[t] of a cache, with batch stride batch_stride: few queries
// read keys and values in place.
template <class T>
struct Heads {
  T* data;
  int64_t head_stride, row_stride;
  const int32_t* table = nullptr;
  int64_t batch_stride = 0;
  T* at(int64_t h, int64_t t) const {
    return data + h * head_stride + t * row_stride + (table != nullptr ? table[t] * batch_stride : 0);
  }
};

// The tensors of one row of the batch.
template <class T>
struct RowTensors {
  Heads<const T> q, k, v;    // the backward pass reads k and v from `packed` only
  const float* packed;       // written by head_mixing_pack()
  Heads<T> out;              // (out_heads, queries, value_size), written by the forward pass
  float* lse;                // (in_heads, queries), as in cpu/attention.h
  Heads<const T> dout = {};  // for the backward pass, like the following members
  Heads<T> dq = {};
  // Gradients of one part, fp32; overwritten, not accumulated. dk and dv: (in_heads, keys, key_size padded to 16) and
  // (out_heads, keys, value_size padded to 16), keys padded to 128: head_mixing_key_floats, head_mixing_value_floats.
  // dm: (queries, in_heads, out_heads) with a matrix for each query, of which the part's are written, otherwise
  // (in_heads, out_heads). du, dv_bias and dr: gradients of RelativeParams' u and v (in_heads, size) and r (in_heads,
  // distances, size).
  float *dk = nullptr, *dv = nullptr, *dm = nullptr, *du = nullptr, *dv_bias = nullptr, *dr = nullptr;
};

// One of `count` parts of the tiles of queries, for a thread.
struct QueryPart {
  int64_t index = 0, count = 1;
};

template <Level, class T>
struct HeadMixingLoops {
  static void pack(const AttentionParams& params, bool backward, int64_t head, Heads<const T> k, Heads<const T> v,
                   float* packed);
  static void forward(const AttentionParams& params, const QueryPart& part, const RowTensors<T>& x, float* scratch);
  static void backward(const AttentionParams& params, const QueryPart& part, const RowTensors<T>& x, float* scratch);
  static void gather(const float* from, int64_t parts, int64_t step, int64_t length, int64_t size, Heads<T> to);
  static void decode_logits(const AttentionParams& params, int64_t head, Heads<const T> q, Heads<const T> k,
                            float* shared);
  static void decode_mix(const AttentionParams& params, float* lse, float* shared);
  static void decode_values(const AttentionParams& params, int64_t head, Heads<const T> v, Heads<T> out, float* shared);
};

// Returns the queries of a tile, except with few queries (kMaxDecodeQueries, cpu/attention.h). They follow from the
// sizes and the cache alone, since they determine the order of summation.
int64_t head_mixing_rows(const AttentionParams& params);

// Returns the floats of the packed keys and values of a batch row, shared by all tiles of a pass; 0 for few queries.
int64_t head_mixing_pack_floats(const AttentionParams& params, bool backward);
// Packs head `head` of in_heads + out_heads.
template <class T>
void head_mixing_pack(const AttentionParams& params, bool backward, int64_t head, Heads<const T> k, Heads<const T> v,
                      float* packed) {
  at_level([&](auto at) { HeadMixingLoops<at, T>::pack(params, backward, head, k, v, packed); });
}

// Return the scratch memory of a call in floats, aligned to 64 bytes.
int64_t head_mixing_forward_scratch(const AttentionParams& params);
int64_t head_mixing_backward_scratch(const AttentionParams& params);
// Return the floats of dk and dv of a part.
int64_t head_mixing_key_floats(const AttentionParams& params);
int64_t head_mixing_value_floats(const AttentionParams& params);

// Computes the tiles of one part. params.matrix is the matrix of the batch row.
template <class T>
void head_mixing_forward(const AttentionParams& params, const QueryPart& part, const RowTensors<T>& x, float* scratch) {
  at_level([&](auto at) { HeadMixingLoops<at, T>::forward(params, part, x, scratch); });
}
template <class T>
void head_mixing_backward(const AttentionParams& params, const QueryPart& part, const RowTensors<T>& x,
                          float* scratch) {
  at_level([&](auto at) { HeadMixingLoops<at, T>::backward(params, part, x, scratch); });
}

// Computes to (length, size) of its first head = the sum of `parts` gradients of the backward pass, `step` floats
// apart.
template <class T>
void head_mixing_gather(const float* from, int64_t parts, int64_t step, int64_t length, int64_t size, Heads<T> to) {
  at_level([&](auto at) { HeadMixingLoops<at, T>::gather(from, parts, step, length, size, to); });
}

// Returns whether the decoding path applies: few queries without a gradient. It packs nothing; the forward pass
// computes a whole batch row in its first part. Threads that share a row take its heads in three steps: logits of each
// head; mixing; values of each head. They share head_mixing_decode_scratch.
bool head_mixing_decodes(const AttentionParams& params);
int64_t head_mixing_decode_scratch(const AttentionParams& params);
template <class T>
void head_mixing_decode_logits(const AttentionParams& params, int64_t head, Heads<const T> q, Heads<const T> k,
                               float* shared) {
  at_level([&](auto at) { HeadMixingLoops<at, T>::decode_logits(params, head, q, k, shared); });
}
inline void head_mixing_decode_mix(const AttentionParams& params, float* lse, float* shared) {
  at_level([&](auto at) { HeadMixingLoops<at, float>::decode_mix(params, lse, shared); });
}
template <class T>
void head_mixing_decode_values(const AttentionParams& params, int64_t head, Heads<const T> v, Heads<T> out,
                               float* shared) {
  at_level([&](auto at) { HeadMixingLoops<at, T>::decode_values(params, head, v, out, shared); });
}

}  // namespace mh::kernels
