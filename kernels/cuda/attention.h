// The attention kernels of a GPU: their tensors and entry points. This file needs no CUDA headers.
#pragma once

#include <cstdint>

#include "attention_params.h"

namespace mh::kernels {

// A tensor (batch, heads, length, size) of any strides; the elements of a row are contiguous.
template <class T>
struct Rows {
  T* data;
  int64_t batch_stride, head_stride, row_stride;
};

struct KeyRange {
  int first, end;
};

// Rows of the kernels' type.
using AnyRows = Rows<void>;

// Statistics of a query and head for a backward pass with head mixing: log-sum-exp (log2), the inverse of the sum of
// its recomputed probabilities, and delta = Σ P dP.
struct alignas(16) QueryStats {
  float lse2, inv_sum, delta, padding;
};
// Zeros after the last entry, which tiles read past the end.
constexpr int kStatsPadding = 16;

// The tensors of a call, in device memory, and its stream. Sizes follow from AttentionParams; q and dq have in_heads,
// out and dout out_heads, k and v the key and value heads.
struct AttentionTensors {
  int64_t batch = 0;
  AnyRows q{}, k{}, v{}, out{}, dout{}, dq{}, dk{}, dv{};
  // Whether dk and dv have the heads of k and v, which then are read once each; otherwise one head for each reader.
  bool kv_read_once = true;
  float* lse = nullptr;               // (batch, in_heads, queries): log-sum-exp, nats
  float* delta = nullptr;             // the same shape; used by a backward pass without mixing
  float* prob_sums = nullptr;         // the same shape; used by a backward pass with mixing
  QueryStats* query_stats = nullptr;  // with mixing, (batch * in_heads * queries + kStatsPadding)
  // With mixing (batch, head_mixing_num_gradients of the call, in_heads, out_heads): gradient of the matrix of each
  // query, or terms of that of a shared matrix, to be summed.
  float* g = nullptr;
  float* dscale = nullptr;  // without mixing (batch, heads, scale_tiles), to be summed; may be null
  // Gradients of relative positions: du and dv_bias of the biases (batch, heads, scale_tiles, key_size), to be summed
  // over rows and tiles, and dr (batch, heads, distances, key_size), to be summed over rows. With mixing there are no
  // du and dv_bias.
  float *du = nullptr, *dv_bias = nullptr, *dr = nullptr;
  // Relative positions with mixing: q + u and q + v in the kernels' type, whose gradients are dq and dq_v. A
  // forward pass also reads q. Without relative positions they are unused, or `q_u` is q.
  AnyRows q_u{}, q_v{}, dq_v{};
  // Split-KV of a forward pass: num_splits of the call, and, if that exceeds 1, partial_out (batch, heads, queries,
  // num_splits, value_size + 2). With mixing head_mixing_num_splits, or another power of two (1 with relative
  // positions), and the larger of (batch, in_heads, queries, num_splits, 2) and (batch, out_heads, queries, num_splits,
  // value_size).
  int num_splits = 1;
  float* partial_out = nullptr;
  void* stream = nullptr;  // cudaStream_t
};

// The tensors with pointers of the kernels' type.
template <class T>
struct KernelTensors : AttentionTensors {
  Rows<const T> q, k, v, dout, q_v;
  Rows<T> out, dq, dk, dv, dq_v;
  explicit KernelTensors(const AttentionTensors& x)
      : AttentionTensors(x),
        q(rows_of<const T>(x.q)),
        k(rows_of<const T>(x.k)),
        v(rows_of<const T>(x.v)),
        dout(rows_of<const T>(x.dout)),
        q_v(rows_of<const T>(x.q_v)),
        out(rows_of<T>(x.out)),
        dq(rows_of<T>(x.dq)),
        dk(rows_of<T>(x.dk)),
        dv(rows_of<T>(x.dv)),
        dq_v(rows_of<T>(x.dq_v)) {}

 private:
  template <class U>
  static Rows<U> rows_of(const AnyRows& rows) {
    return {static_cast<U*>(rows.data), rows.batch_stride, rows.head_stride, rows.row_stride};
  }
};

// The kernels of one type and head size. Each function returns null or a description of the problem; it launches on the
// stream asynchronously and allocates no memory.
struct AttentionKernels {
  int size;  // maximum size of queries, keys and values
  // Returns why attention without mixing does not support relative positions; null if it does.
  const char* (*why_no_relative)();
  int (*scale_tiles)(const AttentionParams& call);
  // Returns the number of splits of the keys in a forward pass on the present GPU; another number rounds differently.
  int (*num_splits)(const AttentionParams& call, int64_t batch);
  const char* (*forward)(const AttentionParams& call, const AttentionTensors& tensors);
  const char* (*backward)(const AttentionParams& call, const AttentionTensors& tensors);
  // Returns why the present GPU cannot mix in_heads heads of queries to out_heads heads of the result, with relative
  // positions or without; null if it can.
  const char* (*why_no_head_mixing)(int in_heads, int out_heads, bool relative);
  int (*head_mixing_num_splits)(const AttentionParams& call, int64_t batch);
  // Returns the number of matrix gradients that head_mixing_backward writes for a row of the batch.
  int (*head_mixing_num_gradients)(const AttentionParams& call);
  const char* (*head_mixing_forward)(const AttentionParams& call, const AttentionTensors& tensors);
  const char* (*head_mixing_backward)(const AttentionParams& call, const AttentionTensors& tensors);
};

}  // namespace mh::kernels
