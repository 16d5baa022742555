// The attention kernels of a GPU: their tensors and entry points. Nothing here needs CUDA headers.
#pragma once

#include <cstdint>

#include "attention_params.h"

namespace mh::kernels {

// (batch, heads, length, size) of any strides; elements of a row are contiguous.
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

// Statistics of a query of a head for a backward pass with head mixing: log2 of its sum of exponentials, the inverse of
// the sum of its probabilities as recomputed from that logarithm, and delta = Σ P dP.
struct alignas(16) QueryStats {
  float lse2, inv_sum, delta, padding;
};
// Zeros after the last, which tiles read past.
constexpr int kStatsPadding = 16;

// The tensors of a call, in device memory, and its stream. Sizes follow from AttentionParams; q and dq have in_heads,
// out and dout out_heads, k and v the key and value heads.
struct AttentionTensors {
  int64_t batch = 0;
  AnyRows q{}, k{}, v{}, out{}, dout{}, dq{}, dk{}, dv{};
  // Whether dk and dv have the heads of k and v, each of which is read once; else they have the heads of the readers.
  bool joined = true;
  float* lse = nullptr;               // (batch, in_heads, queries): log-sum-exp, nats
  float* delta = nullptr;             // the same size; a backward pass without mixing uses it
  float* sums = nullptr;              // the same size; a backward pass with mixing uses it
  QueryStats* query_stats = nullptr;  // and this, (batch * in_heads * queries + kStatsPadding)
  // With mixing (batch, mixed_gradients of the call, in_heads, out_heads): gradients of the matrix of each query; or of
  // a shared one, to be summed.
  float* g = nullptr;
  float* dscale = nullptr;  // without mixing (batch, heads, scale_tiles), to be summed; or null
  // Of relative positions: du and dv of the biases (batch, heads, scale_tiles, key_size), to be summed over rows and
  // tiles, and dr (batch, heads, distances, key_size), over rows. With mixing there are no du and dv.
  float *du = nullptr, *dv_bias = nullptr, *dr = nullptr;
  // Of relative positions with mixing: q + u and q + v of the kernels' type, whose gradients are dq and dshifted. A
  // forward pass reads q besides. Without relative positions they are not read, or `biased` is q.
  AnyRows biased{}, shifted{}, dshifted{};
  // Split-KV of a forward pass: num_splits of the call, and, where they are several, partial_out (batch, heads,
  // queries, num_splits, value_size + 2). With mixing mixed_num_splits, or another power of two (1 with relative
  // positions), and the larger of (batch, in_heads, queries, num_splits, 2) and (batch, out_heads, queries, num_splits,
  // value_size).
  int num_splits = 1;
  float* partial_out = nullptr;
  void* stream = nullptr;  // cudaStream_t
};

// The tensors as the kernels of a type read them.
template <class T>
struct KernelTensors : AttentionTensors {
  Rows<const T> q, k, v, dout, shifted;
  Rows<T> out, dq, dk, dv, dshifted;
  explicit KernelTensors(const AttentionTensors& x)
      : AttentionTensors(x),
        q(rows_of<const T>(x.q)),
        k(rows_of<const T>(x.k)),
        v(rows_of<const T>(x.v)),
        dout(rows_of<const T>(x.dout)),
        shifted(rows_of<const T>(x.shifted)),
        out(rows_of<T>(x.out)),
        dq(rows_of<T>(x.dq)),
        dk(rows_of<T>(x.dk)),
        dv(rows_of<T>(x.dv)),
        dshifted(rows_of<T>(x.dshifted)) {}

 private:
  template <class U>
  static Rows<U> rows_of(const AnyRows& rows) {
    return {static_cast<U*>(rows.data), rows.batch_stride, rows.head_stride, rows.row_stride};
  }
};

// The kernels of one type and head size. Each function returns nullptr or the problem in words; it launches on the
// stream without waiting for it and allocates no memory.
struct AttentionKernels {
  int size;  // sizes of queries, keys and values up to it
  // Why attention without mixing cannot take relative positions; nullptr: it can.
  const char* (*relative_lacks)();
  int (*scale_tiles)(const AttentionParams& call);
  // The number of splits of the keys in a forward pass, on the GPU at hand: another number may round differently.
  int (*num_splits)(const AttentionParams& call, int64_t batch);
  const char* (*forward)(const AttentionParams& call, const AttentionTensors& tensors);
  const char* (*backward)(const AttentionParams& call, const AttentionTensors& tensors);
  // Why the GPU at hand cannot mix in_heads heads of queries to out_heads heads of the result, with relative positions
  // or without; nullptr: it can.
  const char* (*mixed_lacks)(int in_heads, int out_heads, bool relative);
  int (*mixed_num_splits)(const AttentionParams& call, int64_t batch);
  // The number of gradients of matrices that mixed_backward writes for a row of the batch.
  int (*mixed_gradients)(const AttentionParams& call);
  const char* (*mixed_forward)(const AttentionParams& call, const AttentionTensors& tensors);
  const char* (*mixed_backward)(const AttentionParams& call, const AttentionTensors& tensors);
};

}  // namespace mh::kernels
