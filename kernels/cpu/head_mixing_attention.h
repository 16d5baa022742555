// Attention whose heads are mixed after the softmax (Mixhead, Zhang et al. 2022, and any map across heads), in fp32
// whatever the type of the tensors, but for operands of products of bf16: P_j = softmax(scale * Q_j K_jᵀ), or as the
// policy says, P̄_i = Σ_j m[j, i] P_j, out_i = P̄_i V_i.
//
// A few queries against all keys of all heads are held at once; where those are too many for the cache, a span of keys,
// in two passes: the first takes each query's log-sum-exp, the second its probabilities. The backward pass takes the
// probabilities again from the logarithm of each query's sum of exponentials. With dP̄_i = dO_i V_iᵀ and G[j, i] = Σ_s
// P_j dP̄_i, which is the gradient of m, the gradient of the logits is P_j (Σ_i m[j, i] dP̄_i - Σ_i m[j, i] G[j, i]);
// where keys are cut, the first of two passes takes G. The logarithm is rounded, by 2^-24 of the largest logit: so the
// probabilities are divided by their sum, without which the gradients of large logits would not add up to zero.
#pragma once

#include <cstdint>

#include "attention_params.h"
#include "cpu/bf16_gemm.h"
#include "cpu/simd.h"

namespace mh::kernels {

// (heads, length, size): element (h, t) starts at data + h * head_stride + t * row_stride. T is float or uint16_t
// (bf16). With a table, position t is in row table[t] of a cache, whose rows are batch_stride apart: few queries read
// keys and values where they were written.
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
  Heads<const T> q, k, v;    // a backward pass reads k and v from `packed` alone
  const float* packed;       // by head_mixing_pack
  Heads<T> out;              // (out_heads, queries, value_size), of a forward pass
  float* lse;                // (in_heads, queries), as cpu/attention.h's
  Heads<const T> dout = {};  // of a backward pass, as what follows
  Heads<T> dq = {};
  // Gradients of one part, fp32; written, not added to. dk and dv: (in_heads, keys, key_size padded to 16) and
  // (out_heads, keys, value_size padded to 16), keys padded to 128: head_mixing_key_floats, head_mixing_value_floats.
  // dm: of a matrix for each query (queries, in_heads, out_heads), of which the part's are written, else (in_heads,
  // out_heads). du, dv_bias and dr: of RelativeParams' u and v (in_heads, size) and r (in_heads, distances, size).
  float *dk = nullptr, *dv = nullptr, *dm = nullptr, *du = nullptr, *dv_bias = nullptr, *dr = nullptr;
};

// Tiles of queries are dealt out to `count` parts.
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

// Queries at once, but for few of them (kMaxDecodeQueries, cpu/attention.h): fixed by the sizes and the cache alone,
// since they decide in which order numbers are added.
int64_t head_mixing_rows(const AttentionParams& params);

// Floats of the keys and values of a row of the batch as a pass reads them, for all of its tiles; 0 for few queries.
int64_t head_mixing_pack_floats(const AttentionParams& params, bool backward);
// Packs head `head` of them, of in_heads + out_heads.
template <class T>
void head_mixing_pack(const AttentionParams& params, bool backward, int64_t head, Heads<const T> k, Heads<const T> v,
                      float* packed) {
  at_level([&](auto at) { HeadMixingLoops<at, T>::pack(params, backward, head, k, v, packed); });
}

// Floats of scratch memory that a call needs, aligned to 64 bytes.
int64_t head_mixing_forward_scratch(const AttentionParams& params);
int64_t head_mixing_backward_scratch(const AttentionParams& params);
// Floats of dk and dv of a part.
int64_t head_mixing_key_floats(const AttentionParams& params);
int64_t head_mixing_value_floats(const AttentionParams& params);

// The tiles of one part. how.matrix points to the matrix of the row.
template <class T>
void mixed_forward(const AttentionParams& params, const QueryPart& part, const RowTensors<T>& x, float* scratch) {
  at_level([&](auto at) { HeadMixingLoops<at, T>::forward(params, part, x, scratch); });
}
template <class T>
void mixed_backward(const AttentionParams& params, const QueryPart& part, const RowTensors<T>& x, float* scratch) {
  at_level([&](auto at) { HeadMixingLoops<at, T>::backward(params, part, x, scratch); });
}

// to (length, size) of its first head = the sum of `parts` gradients as mixed_backward makes them, `step` floats apart.
template <class T>
void head_mixing_gather(const float* from, int64_t parts, int64_t step, int64_t length, int64_t size, Heads<T> to) {
  at_level([&](auto at) { HeadMixingLoops<at, T>::gather(from, parts, step, length, size, to); });
}

// Few queries without a gradient, as decoding has them, need nothing packed; mixed_forward does all of a row in its
// first part. Threads that share a row take its heads in three steps: logits of each head; mixing; values of each head.
// They share head_mixing_decode_scratch.
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
