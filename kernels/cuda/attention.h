// What the attention kernels of a GPU are given. Nothing here knows CUDA, so that its caller need not.
#pragma once

#include <cstdint>

#include "dropout_plan.h"
#include "policy.h"

namespace mh::kernels {

// (batch, heads, length, size) of any strides; elements of a row are contiguous.
template <class T>
struct Rows {
  T* data;
  int64_t batch, head, position;
};

// Of relative positions, in device memory.
struct Positions {
  const float *u = nullptr, *v = nullptr;  // (heads, key_size)
  const void* rows = nullptr;              // r: (heads, distances, key_size) of the kernels' type, a row contiguous
  int64_t head = 0, position = 0;          // how far its heads and its rows are from one another
  const Run* runs = nullptr;               // all keys in their order
  int distances = 0, count = 0;            // of r; of runs
};

// Policy's pointers are to device memory, but for `dropout` and `relative`, of which only that they are there matters;
// its scale is positive.
struct AttentionCall : Policy {
  int heads = 0;                         // of the result, each of which reads a head of keys and one of values
  int key_size = 0, value_size = 0;      // of a query or key; of a value. As compiled, or less
  Dropout dropping = {};                 // what `dropout` points to; dropout_first is of row 0, head 0
  const int64_t* key_lengths = nullptr;  // (batch), or null: only so many keys of a row are real
  int dropout_heads = 0;                 // of a row, by which elements of the stream are counted
  int64_t scales_row = 0;                // head_scales[row * scales_row + head]
  bool aligned = false;   // every row of q, k, v, their gradients and r begins and ends at multiples of 16 bytes
  Positions positions{};  // what `relative` points to
};

// Attention whose heads are mixed behind the softmax: P̄_i = Σ_j m[j, i] P_j. `heads` are those of the result; a scale
// of theirs is part of the matrix, and head_scales is not read.
struct MixedCall : AttentionCall {
  int in = 0;                     // heads of queries and keys
  const float* matrix = nullptr;  // that of query t of row b, (in, heads), at b * matrix_row + t * matrix_query
  const float* turned = nullptr;  // the transpose of each, (heads, in), for a backward pass
  int64_t matrix_row = 0, matrix_query = 0;
  bool dropped_first = false;  // what is mixed is dropped, not what has been

  // Of matrices or their transposes, the one that all queries of row b have, or null.
  constexpr const float* shared(const float* matrices, int64_t b) const {
    return matrix_query == 0 ? matrices + b * matrix_row : nullptr;
  }
};

struct KeyRange {
  int first, end;
};

// Rows of the kernels' type.
using AnyRows = Rows<void>;

// What a backward pass of mixed heads knows of a query of a head: log2 of its sum of exponentials, the inverse of the
// sum of its probabilities as they are taken from that, and Σ P dP.
struct alignas(16) OfQuery {
  float log_sum, inverse, d, nothing;
};
// So many behind the last, zeros, which tiles run into.
constexpr int kQueriesBehind = 16;

// The tensors of a call, in device memory, and where it goes. Sizes are those of the call; q and dq have its heads of
// queries, out and dout those of the result, k and v those that they are read from.
struct AttentionTensors {
  int64_t batch = 0;
  AnyRows q{}, k{}, v{}, out{}, dout{}, dq{}, dk{}, dv{};
  // Whether dk and dv have the heads of k and v, each of which is read once; else those of their readers.
  bool joined = true;
  float* log_sums = nullptr;      // (batch, heads of queries, queries)
  float* d = nullptr;             // the same size; a backward pass of heads that nothing mixes uses it
  float* sums = nullptr;          // the same size; a backward pass of mixed heads uses it
  OfQuery* of_queries = nullptr;  // and this, (batch * heads of queries * queries + kQueriesBehind)
  float* g = nullptr;             // of mixed heads (batch, queries, in, heads): the gradient of each query's matrix
  float* dscale = nullptr;        // of heads that nothing mixes (batch, heads, scale_tiles), to be summed over; or null
  // Of relative positions: du and dv of the biases (batch, heads, scale_tiles, key_size), to be summed over rows and
  // tiles, and dr (batch, heads, distances, key_size), over rows. Mixed heads have no du and dv.
  float *du = nullptr, *dv_bias = nullptr, *dr = nullptr;
  // Of relative positions of mixed heads: q + u and q + v of the kernels' type, whose gradients are dq and dshifted. A
  // forward pass reads q besides. Without relative positions they are not read, or `biased` is q.
  AnyRows biased{}, shifted{}, dshifted{};
  // What a forward pass uses: key_parts of the call, and, where they are several, (batch, heads, queries, parts,
  // value_size + 2). Of mixed heads mixed_key_parts, or another power of two (1 with relative positions), and the
  // larger of (batch, in, queries, parts, 2) and (batch, heads, queries, parts, value_size).
  int parts = 1;
  float* found = nullptr;
  void* stream = nullptr;  // cudaStream_t
};

// Of one type and head size. Each gives nullptr, or what is wrong in words; launches on the stream, without waiting for
// it and without memory of its own.
struct AttentionKernels {
  int size;  // sizes of queries, keys and values up to it
  // What is wrong with relative positions here, of heads that nothing mixes.
  const char* (*relative_lacks)();
  int (*scale_tiles)(const AttentionCall& call);
  // Into how many parts a forward pass divides the keys, on the GPU at hand: results of another number may differ by
  // what rounding does.
  int (*key_parts)(const AttentionCall& call, int64_t batch);
  const char* (*forward)(const AttentionCall& call, const AttentionTensors& tensors);
  const char* (*backward)(const AttentionCall& call, const AttentionTensors& tensors);
  // What is wrong with so many heads of queries and of the result, if they are mixed, with relative positions or
  // without, on the GPU at hand.
  const char* (*mixed_lacks)(int in, int heads, bool relative);
  int (*mixed_key_parts)(const MixedCall& call, int64_t batch);
  const char* (*mixed_forward)(const MixedCall& call, const AttentionTensors& tensors);
  const char* (*mixed_backward)(const MixedCall& call, const AttentionTensors& tensors);
};

}  // namespace mh::kernels
