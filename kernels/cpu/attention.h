// Attention without head mixing on a CPU, for one head of one batch row: softmax(scale * Q Kᵀ) V, or the same with
// Sigsoftmax, and the gradient. Sums are accumulated in fp32; products by Bf16Gemm take bf16 operands. The scratch
// memory holds the probabilities of one block of queries and one span of keys, or, in the decode kernel, of one query.
//
// Tiling: the forward pass loops over blocks of 32 queries (kBlockQueries), and for each block over spans of keys; the
// backward pass loops over spans, and for each span over blocks. A span is so short that its probabilities fit in the
// L2 cache. Keys and values are packed once per head. The softmax is online: each span rescales the sums of the
// previous spans to the new running maximum. The backward pass recomputes the probabilities from the log-sum-exp of
// each query.
//
// The products of a block with a span are computed in register tiles (cpu/products.h), or by Bf16Gemm, 64 keys at a
// time. The scratch memory of a call holds the packed keys and values, the packed rows of a block, one tile of logits
// (32, span + 16), or two in the backward pass, in fp32, and the sums of outputs or of gradients. The soft cap, the
// position bias and the sink are applied to one query at a time, in the tile; a soft cap adds its derivatives for one
// query, span + 16 floats, to the scratch memory of the backward pass. For 512 positions of size 64, and an L2 cache of
// at least 512 KiB, so that one span has all keys, the scratch memory of the forward pass takes 342 KiB with products
// in fp32 and 210 KiB with products in bf16, and the scratch memory of the backward pass 944 KiB and 748 KiB.
//
// The decode kernel, for at most kMaxDecodeQueries queries without a gradient, computes one query after another and
// reads keys and values in place: first the logits of all keys, each with one vector of 16 partial sums, with a
// prefetch of the key four keys ahead; then the output, up to 64 columns at a time in 4 vectors of accumulators. It
// uses scratch memory for the scaled query and one row of logits: 2.25 KiB for 512 positions of size 64. The keys and
// values of these positions take 256 KiB in total in fp32 and 128 KiB in bf16; if they fit in the L2 cache, they stay
// there for the next query.
#pragma once

#include <cstdint>

#include "attention_params.h"
#include "cpu/bf16_gemm.h"
#include "cpu/matrix.h"
#include "cpu/simd.h"

namespace mh::kernels {

// Maximum number of queries of the decode kernel, which reads keys and values in place: for so few queries packing the
// keys costs more than it saves. The decode kernel serves only passes without a gradient, since it rounds logits
// differently from the backward pass, which recomputes the logits.
constexpr int64_t kMaxDecodeQueries = 8;

// The tensors of one head of one batch row. A Matrix is (queries, size) or (keys, size). T is float or uint16_t (bf16).
template <class T>
struct HeadTensors {
  Matrix<const T> q, k, v;
  Matrix<T> out;  // (queries, size): written by the forward pass, read by the backward pass
  // (queries): log-sum-exp of each query, nats. It is +inf for a fully masked row (a query that sees no key or whose
  // logits are all -inf); the output and gradients of such a query are zero. Written by the forward pass, read by the
  // backward pass.
  float* lse;
  // Gradients. The backward pass reads dout, and writes dq, dk, dv and the members below.
  Matrix<const T> dout = {};
  Matrix<T> dq = {}, dk = {}, dv = {};
  // Gradients with respect to u, v and r of RelativeParams: du (size), dv_bias (size), dr (distances, size). Not
  // written without relative positions.
  float *du = nullptr, *dv_bias = nullptr, *dr = nullptr;
  float* dscale = nullptr;          // gradient of the scale of this head's output, a scalar; null: not computed
  float* dsink = nullptr;           // gradient of the sink of this head, a scalar; null: not computed
  float* dposition_bias = nullptr;  // (num_distances): gradient of the head's row of PositionBiasParams::bias; or null
};

// The forward and the backward pass, compiled for one instruction set (cpu/simd.h).
template <SimdLevel, class T>
struct AttentionLoops {
  static void forward(const AttentionParams& params, const HeadTensors<T>& tensors, float* scratch);
  static void backward(const AttentionParams& params, const HeadTensors<T>& tensors, float* scratch);
};

// Return the number of floats of scratch memory for one call of attention_forward() or attention_backward(). The
// scratch memory must be aligned to 64 bytes.
int64_t attention_forward_scratch_floats(const AttentionParams& params);
int64_t attention_backward_scratch_floats(const AttentionParams& params);

// Compute the forward and the backward pass of the head params.head. The size of keys and of values is params.key_size,
// a multiple of 16; params.value_size is not read.
template <class T>
void attention_forward(const AttentionParams& params, const HeadTensors<T>& tensors, float* scratch) {
  dispatch_simd_level([&](auto simd_level) { AttentionLoops<simd_level, T>::forward(params, tensors, scratch); });
}
template <class T>
void attention_backward(const AttentionParams& params, const HeadTensors<T>& tensors, float* scratch) {
  dispatch_simd_level([&](auto simd_level) { AttentionLoops<simd_level, T>::backward(params, tensors, scratch); });
}

}  // namespace mh::kernels
