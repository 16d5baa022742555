// Plain attention of one head of one row of the batch: softmax(scale * Q Kᵀ) V and its gradient, in fp32 whatever the
// type of the tensors but for operands of products of bf16, without ever holding more than a block of queries'
// probabilities.
//
// A block of queries meets a span of keys, so many that its probabilities stay in the second-level cache; the keys and
// values are unpacked once. The softmax is exact: sums of the spans before are brought to the maximum of those so far.
// The backward pass takes the probabilities again from the log-sum-exp of each query, span by span.
#pragma once

#include <cstdint>

#include "cpu/bf16_engine.h"
#include "cpu/level.h"
#include "policy.h"

namespace mh::kernels {

// So many queries, or fewer, as decoding has them, are not worth to unpack the keys for: without a gradient each key is
// read where it is, once a query. The same query has other bits, in the last place, among so few and among more.
constexpr int64_t kFewQueries = 8;

struct Attention : Policy {
  int64_t size = 0;             // of a query, key or value: a multiple of 16
  int64_t head = 0;             // which of Policy's, whose keys and values the caller gives
  int64_t cache = kUsualCache;  // bytes of the processor's second level, by which keys are cut
  // What multiplies bf16, but for relative positions and few queries; null: products are in fp32. It is null of fp32,
  // and its processor has AVX-512.
  const Bf16Engine* bf16 = nullptr;
};

// (length, size), rows contiguous, row r at data + r * stride. T is float or uint16_t (bf16).
template <class T>
struct Matrix {
  T* data;
  int64_t stride;
};

// Floats of scratch memory that a call needs, aligned to 64 bytes.
int64_t attention_forward_scratch(const Attention& how);
int64_t attention_backward_scratch(const Attention& how);

// out (queries, size); log_sums (queries): natural logarithm of each query's sum of exponentials, infinite where no key
// weighs anything: none is seen, or all logits are -inf. Such a query's result is zero, and so is all it gives back.
template <class T>
void attention_forward(const Attention& how, Matrix<const T> q, Matrix<const T> k, Matrix<const T> v, Matrix<T> out,
                       float* log_sums, float* scratch);

template <class T>
struct AttentionGradients {
  Matrix<T> dq, dk, dv;
  // Of Relative's u and v (size) and r (distances, size), what this head of this row gives; written, not added to.
  float *du = nullptr, *dv_bias = nullptr, *dr = nullptr;
  float* dscale = nullptr;  // one number, of Policy::head_scales; null: not wanted
};
template <class T>
void attention_backward(const Attention& how, Matrix<const T> q, Matrix<const T> k, Matrix<const T> v,
                        Matrix<const T> out, Matrix<const T> dout, const float* log_sums,
                        const AttentionGradients<T>& gradients, float* scratch);

}  // namespace mh::kernels
