// Plain attention of one head of one row of the batch: softmax(scale * Q Kᵀ) V and its gradient, accumulated in fp32
// for all types, with operands of bf16 products in bf16. Only the probabilities of one block of queries exist at a
// time.
//
// Tiling: a block of queries visits the keys in spans whose probabilities fit in the second-level cache; keys and
// values are unpacked once. The softmax is online: sums of earlier spans are rescaled to the running maximum. The
// backward pass recomputes the probabilities from the log-sum-exp of each query, span by span.
#pragma once

#include <cstdint>

#include "attention_params.h"
#include "cpu/bf16_gemm.h"
#include "cpu/matrix.h"
#include "cpu/simd.h"

namespace mh::kernels {

// Maximum number of queries, as in decoding, for which unpacking the keys does not pay: without a gradient each query
// reads the keys in place. The two kernels round differently.
constexpr int64_t kMaxDecodeQueries = 8;

// The tensors of one head of one row of the batch, (length, size) each. T is float or uint16_t (bf16).
template <class T>
struct HeadTensors {
  Matrix<const T> q, k, v;
  Matrix<T> out;  // (queries, size): written by a forward pass, read by a backward pass
  // (queries): log-sum-exp of each query, nats; infinite for a fully masked row, which sees no key or only logits of
  // -inf. Its result and gradients are zero.
  float* lse;
  // The backward pass reads dout and writes the others.
  Matrix<const T> dout = {};
  Matrix<T> dq = {}, dk = {}, dv = {};
  float *du = nullptr, *dv_bias = nullptr,
        *dr = nullptr;      // gradients of RelativeParams' u and v (size) and r (distances, size)
  float* dscale = nullptr;  // gradient of the head's scale, one number; null: not computed
};

template <Level, class T>
struct AttentionLoops {
  static void forward(const AttentionParams& params, const HeadTensors<T>& x, float* scratch);
  static void backward(const AttentionParams& params, const HeadTensors<T>& x, float* scratch);
};

// Return the scratch memory of a call in floats, aligned to 64 bytes.
int64_t attention_forward_scratch(const AttentionParams& params);
int64_t attention_backward_scratch(const AttentionParams& params);

// params.key_size is also the size of values, a multiple of 16.
template <class T>
void attention_forward(const AttentionParams& params, const HeadTensors<T>& x, float* scratch) {
  at_level([&](auto at) { AttentionLoops<at, T>::forward(params, x, scratch); });
}
template <class T>
void attention_backward(const AttentionParams& params, const HeadTensors<T>& x, float* scratch) {
  at_level([&](auto at) { AttentionLoops<at, T>::backward(params, x, scratch); });
}

}  // namespace mh::kernels
