// Plain attention of one head of one row of the batch: softmax(scale * Q Kᵀ) V and its gradient, in fp32 whatever the
// type of the tensors but for operands of products of bf16, without ever holding more than a block of queries'
// probabilities.
//
// A block of queries goes through the keys in spans whose probabilities fit the second-level cache; keys and values are
// unpacked once. The softmax is exact: sums of earlier spans are rescaled to the running maximum. The backward pass
// recomputes the probabilities from the log-sum-exp of each query, span by span.
#pragma once

#include <cstdint>

#include "attention_params.h"
#include "cpu/bf16_gemm.h"
#include "cpu/matrix.h"
#include "cpu/simd.h"

namespace mh::kernels {

// The most queries for which unpacking the keys does not pay, as in decoding: without a gradient each key is read where
// it is, once a query. The last bits of a query's result differ between the two ways.
constexpr int64_t kMaxDecodeQueries = 8;

// The tensors of one head of one row of the batch, (length, size) each. T is float or uint16_t (bf16).
template <class T>
struct HeadTensors {
  Matrix<const T> q, k, v;
  Matrix<T> out;  // (queries, size): written by a forward pass, read by a backward pass
  // (queries): log-sum-exp of each query, nats; infinite for a fully masked row, of which no key is seen or all logits
  // are -inf. Its result is zero, and so are its gradients.
  float* lse;
  // A backward pass reads dout and writes the rest.
  Matrix<const T> dout = {};
  Matrix<T> dq = {}, dk = {}, dv = {};
  float *du = nullptr, *dv_bias = nullptr, *dr = nullptr;  // of RelativeParams' u and v (size) and r (distances, size)
  float* dscale = nullptr;  // one number, of AttentionParams::head_scales; null: not wanted
};

template <Level, class T>
struct AttentionLoops {
  static void forward(const AttentionParams& params, const HeadTensors<T>& x, float* scratch);
  static void backward(const AttentionParams& params, const HeadTensors<T>& x, float* scratch);
};

// Floats of scratch memory that a call needs, aligned to 64 bytes.
int64_t attention_forward_scratch(const AttentionParams& params);
int64_t attention_backward_scratch(const AttentionParams& params);

// how.key_size is the size of values too, a multiple of 16.
template <class T>
void attention_forward(const AttentionParams& params, const HeadTensors<T>& x, float* scratch) {
  at_level([&](auto at) { AttentionLoops<at, T>::forward(params, x, scratch); });
}
template <class T>
void attention_backward(const AttentionParams& params, const HeadTensors<T>& x, float* scratch) {
  at_level([&](auto at) { AttentionLoops<at, T>::backward(params, x, scratch); });
}

}  // namespace mh::kernels
