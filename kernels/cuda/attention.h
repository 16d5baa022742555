// The interface of the fused attention kernels on a GPU: their tensors and entry points. This header includes no CUDA
// header, so the host code can include it.
#pragma once

#include <cstdint>

#include "attention_params.h"

namespace mh::kernels {

// A tensor (batch, heads, length, size) with any batch, head and row strides, in elements. The `size` elements of a row
// are contiguous.
template <class T>
struct StridedTensor {
  T* data;
  int64_t batch_stride, head_stride, row_stride;
};

// The keys or queries `first` … `end` - 1.
struct IndexRange {
  int first, end;
};

// A tensor whose element type is the type of the kernels (AttentionKernels).
using UntypedTensor = StridedTensor<void>;

// Statistics of one query and query head for the backward pass with head mixing. lse2: log-sum-exp in base 2. inv_sum:
// 1 / (sum of the recomputed probabilities); 0 for a fully masked row. delta: Σ P dP over the keys.
struct alignas(16) QueryStats {
  float lse2, inv_sum, delta, padding;
};
// Number of zero entries after the last entry of AttentionTensors::query_stats. The last tile of 16 queries reads up to
// 15 of these entries.
constexpr int kStatsPadding = 16;

// The tensors of a call, in GPU memory, and its CUDA stream. Their sizes follow from AttentionParams: q and dq have
// `heads` heads, out and dout have `value_heads` heads, and k and v have as many heads as k_head_of and v_head_of
// refer to.
struct AttentionTensors {
  int64_t batch = 0;
  UntypedTensor q{}, k{}, v{}, out{}, dout{}, dq{}, dk{}, dv{};
  // Whether each head of k is read by exactly one query head, and each head of v by exactly one value head. If so, dk
  // and dv have the heads of k and v. Otherwise dk has `heads` and dv has `value_heads` heads, and the caller sums the
  // heads that share a key/value head.
  bool has_one_reader_per_kv_head = true;
  float* lse = nullptr;    // (batch, heads, queries): log-sum-exp, nats; +inf for a fully masked row
  float* delta = nullptr;  // (batch, heads, queries): rowsum(dout ∘ out), written by the backward pass without mixing
  // Scratch of the backward pass with mixing: sums of the recomputed probabilities; statistics for the gradients.
  float* prob_sums = nullptr;         // (batch, heads, queries)
  QueryStats* query_stats = nullptr;  // (batch * heads * queries + kStatsPadding)
  // Gradients of the mixing matrices, (batch, head_mixing_num_matrix_gradients(), heads, value_heads): one for each
  // query, or, if the queries share a matrix, partial gradients that the caller sums.
  float* dm = nullptr;
  // Gradients of head_scales, (batch, heads, num_query_tiles()), only without mixing: the caller sums them over the
  // tiles. Null: not computed.
  float* dscale = nullptr;
  // Gradients with respect to r, u and v of RelativeParams. dr (batch, heads, distances, key_size): the caller sums it
  // over the batch. du and dv_bias (batch, heads, num_query_tiles(), key_size), only without mixing: the caller sums
  // them over the batch and the tiles.
  float *du = nullptr, *dv_bias = nullptr, *dr = nullptr;
  // Gradient of the position bias (batch, heads, distances), only without mixing: the caller sums it over the batch.
  // Null: not computed. The gradient of the sinks follows from lse and delta: a sink ψ of a head has the gradient
  // -Σ exp(ψ - lse) delta, summed over the batch and the queries.
  float* dposition_bias = nullptr;
  // With relative positions and head mixing, q_u is q + u and q_v is q + v, each rounded to the type of the kernels; dq
  // is the gradient of q_u, and dq_v of q_v; the forward pass also reads q. In all other calls q_v and dq_v are unused,
  // and q_u is null or q itself.
  UntypedTensor q_u{}, q_v{}, dq_v{};
  // Split-KV of the forward pass: number of splits; partial results of the splits (scratch), if there are several.
  // Without mixing, num_splits is a result of AttentionKernels::num_splits(), and partial_out has the shape (batch,
  // heads, queries, num_splits, value_size + 2). With mixing, num_splits is a result of head_mixing_num_splits() or any
  // power of two (only 1 with relative positions), and partial_out is as large as the larger of (batch, heads, queries,
  // num_splits, 2) and (batch, value_heads, queries, num_splits, value_size).
  int num_splits = 1;
  float* partial_out = nullptr;
  void* stream = nullptr;  // cudaStream_t
};

// AttentionTensors with pointers to T, the type of the kernels.
template <class T>
struct KernelTensors : AttentionTensors {
  StridedTensor<const T> q, k, v, dout, q_v;
  StridedTensor<T> out, dq, dk, dv, dq_v;
  explicit KernelTensors(const AttentionTensors& tensors)
      : AttentionTensors(tensors),
        q(cast_to<const T>(tensors.q)),
        k(cast_to<const T>(tensors.k)),
        v(cast_to<const T>(tensors.v)),
        dout(cast_to<const T>(tensors.dout)),
        q_v(cast_to<const T>(tensors.q_v)),
        out(cast_to<T>(tensors.out)),
        dq(cast_to<T>(tensors.dq)),
        dk(cast_to<T>(tensors.dk)),
        dv(cast_to<T>(tensors.dv)),
        dq_v(cast_to<T>(tensors.dq_v)) {}

 private:
  template <class U>
  static StridedTensor<U> cast_to(const UntypedTensor& x) {
    return {static_cast<U*>(x.data), x.batch_stride, x.head_stride, x.row_stride};
  }
};

// The attention kernels for one type and one maximum head size. forward(), backward(), head_mixing_forward()
// and head_mixing_backward() launch kernels asynchronously on AttentionTensors::stream and allocate no memory. These
// four functions and the constraint functions return null, or a description of the problem.
struct AttentionKernels {
  int max_head_size;  // maximum head size of queries and keys, and of values
  // Returns why attention without mixing does not support relative positions on the current GPU; null if it does.
  const char* (*relative_constraint)();
  // Returns why attention without mixing does not support logit terms, that is, a soft cap, sinks, a position bias
  // or a window without a causal mask (AttentionParams), with or without relative positions; null if it does.
  const char* (*logit_term_constraint)(bool has_relative_positions);
  // Returns the number of query tiles of the backward pass without mixing: the third size of dscale, du and dv_bias.
  int (*num_query_tiles)(const AttentionParams& params);
  // Returns the number of splits of the keys that is fastest in a forward pass without mixing on the current GPU.
  // Results with different numbers of splits differ by rounding.
  int (*num_splits)(const AttentionParams& params, int64_t batch);
  const char* (*forward)(const AttentionParams& params, const AttentionTensors& tensors);
  const char* (*backward)(const AttentionParams& params, const AttentionTensors& tensors);
  // Returns why the current GPU cannot mix `heads` query heads to `value_heads` value heads, with or without relative
  // positions; null if it can.
  const char* (*head_mixing_constraint)(int heads, int value_heads, bool has_relative_positions);
  // Returns the number of splits of the keys that is fastest in a forward pass with mixing on the current GPU.
  int (*head_mixing_num_splits)(const AttentionParams& params, int64_t batch);
  // Returns the number of matrix gradients that head_mixing_backward() writes to AttentionTensors::dm for a batch row.
  int (*head_mixing_num_matrix_gradients)(const AttentionParams& params);
  const char* (*head_mixing_forward)(const AttentionParams& params, const AttentionTensors& tensors);
  const char* (*head_mixing_backward)(const AttentionParams& params, const AttentionTensors& tensors);
};

}  // namespace mh::kernels
