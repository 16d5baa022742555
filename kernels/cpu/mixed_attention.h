// Attention whose heads are mixed behind the softmax (Mixhead, Zhang et al. 2022, and any map across heads), in fp32
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

#include "cpu/bf16_engine.h"
#include "cpu/level.h"
#include "policy.h"

namespace mh::kernels {

// A scale of a head of the result is part of m: head_scales is not read.
struct MixedAttention : Policy {
  int64_t most_keys = 0;                 // of any row: by it and the cache queries are cut into tiles, and keys
  int64_t cache = kUsualCache;           // bytes of the processor's second level
  int64_t in = 0, out = 0;               // heads of queries and keys; heads of values
  int64_t key_size = 0, value_size = 0;  // of a query or key; of a value
  bool by_query = false;                 // a matrix for each query, (queries, in, out); else one, (in, out)
  // Dropout is of the mixed probabilities, or of those that are mixed (dropped_first); from head to head its elements
  // are dropout_head apart.
  bool dropped_first = false;
  int64_t dropout_head = 0;
  // What multiplies bf16, but for relative positions and few queries; null: products are in fp32. It is null of fp32.
  const Bf16Engine* bf16 = nullptr;
};

// (heads, length, size): element (h, t) starts at data + h * head + t * position. T is float or uint16_t (bf16). Of a
// cache whose rows are left where they were written, position t besides stands in row table[t], rows `row` apart: few
// queries may read keys and values so.
template <class T>
struct Heads {
  T* data;
  int64_t head, position;
  const int32_t* table = nullptr;
  int64_t row = 0;
  T* at(int64_t h, int64_t t) const { return data + h * head + t * position + (table != nullptr ? table[t] * row : 0); }
};

// Queries at once, but for few of them (kFewQueries, cpu/attention.h): fixed by the sizes and the cache alone, since
// they decide in which order numbers are added.
int64_t mixed_attention_rows(const MixedAttention& how);

// Keys and values of a row of the batch as a pass reads them, for all of its tiles: floats, and head `head` of them, of
// in + out. Nothing where there are few queries.
int64_t mixed_pack_floats(const MixedAttention& how, bool backward);
template <class T>
void mixed_pack(const MixedAttention& how, bool backward, int64_t head, Heads<const T> k, Heads<const T> v,
                float* packed);

// Floats of scratch memory that a call needs, aligned to 64 bytes.
int64_t mixed_forward_scratch(const MixedAttention& how);
int64_t mixed_backward_scratch(const MixedAttention& how);

// The tiles of the queries that are the part's of so many parts. out (out, queries, value_size), log_sums (in,
// queries), as cpu/attention.h's.
template <class T>
void mixed_forward(const MixedAttention& how, int64_t part, int64_t parts, Heads<const T> q, Heads<const T> k,
                   Heads<const T> v, const float* packed, const float* m, Heads<T> out, float* log_sums,
                   float* scratch);

// Few queries without a gradient, as decoding has them, need nothing packed; mixed_forward does all of a row in its
// first part. Threads that share a row take its heads in three steps: logits of each head; mixing; values of each head.
// They share mixed_few_floats.
bool mixed_takes_few(const MixedAttention& how);
int64_t mixed_few_floats(const MixedAttention& how);
template <class T>
void mixed_few_logits(const MixedAttention& how, int64_t head, Heads<const T> q, Heads<const T> k, float* shared);
void mixed_few_mix(const MixedAttention& how, const float* m, float* log_sums, float* shared);
template <class T>
void mixed_few_values(const MixedAttention& how, int64_t head, Heads<const T> v, Heads<T> out, float* shared);

// What a part's queries give, fp32; written, not added to.
int64_t mixed_key_floats(const MixedAttention& how);
int64_t mixed_value_floats(const MixedAttention& how);
struct MixedGradients {
  float *dk, *dv;  // (in, keys, key_size padded to 16) and (out, keys, value_size padded to 16), keys padded to 128:
                   // mixed_key_floats, mixed_value_floats
  float* dm;       // by_query (queries, in, out), of which the tiles' are written, else (in, out)
  float *du = nullptr, *dv_bias = nullptr,
        *dr = nullptr;  // of Relative's u and v (in, size) and r (in, distances, size)
};
// The same tiles.
template <class T>
void mixed_backward(const MixedAttention& how, int64_t part, int64_t parts, Heads<const T> q, const float* packed,
                    const float* m, Heads<const T> dout, const float* log_sums, Heads<T> dq, const MixedGradients& to,
                    float* scratch);

// to (length, size) of one head = the sum of `parts` gradients as mixed_backward makes them, `step` floats apart.
template <class T>
void mixed_gather(const float* from, int64_t parts, int64_t step, int64_t length, int64_t size, T* to,
                  int64_t position);

}  // namespace mh::kernels
