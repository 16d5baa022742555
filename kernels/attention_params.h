// The parameters of every fused attention, on every device, with head mixing or without. The kernels read them, and so
// do the naive loops that tests compare the kernels with.
#pragma once

#include <algorithm>
#include <cstdint>

#include "dropout_plan.h"
#include "normaliser.h"

namespace mh::kernels {

struct Bf16Gemm;  // cpu/bf16_gemm.h

// A run of consecutive keys: `count` keys from key `first`. The distance of query t to key s of the run has row `row` +
// queries - 1 - t + s - first of r.
struct Run {
  int64_t first, count, row;
};

// Relative positions of Transformer-XL (Dai et al. 2019, section 3.3): the logit of query t of head j and key s is
// scale * ((q + u_j) · k + (q + v_j) · r_j[distance]). On a CPU all rows are fp32, padded with zeros to a multiple of
// 16 elements; on a GPU u and v are fp32, rows are of the kernels' type and not padded.
struct RelativeParams {
  // Rows of zeros after the last distance, on a CPU: products of whole tiles read past the end.
  static constexpr int kPaddingRows = 80;
  const float *u = nullptr, *v = nullptr;   // (heads, key_size); null: no relative positions
  const void* rows = nullptr;               // r: (heads, distances, key_size), a row contiguous
  int64_t head_stride = 0, row_stride = 0;  // strides of rows
  const Run* runs = nullptr;                // runs of all keys, in order
  int distances = 0, num_runs = 0;          // distances: kPaddingRows included
  const float* transposed = nullptr;        // on a CPU: each head's r transposed, (heads, key_size, distances)
};

// Pointers refer to memory of the device that computes.
struct AttentionParams {
  // Of one row of the batch. Without keys the result is zero.
  int64_t queries = 0, keys = 0;
  float scale = 1;      // scale of the logits; on a GPU positive
  bool causal = false;  // query i sees keys 0 … keys - queries + i; queries <= keys
  int64_t window = 0;   // causal: only the last `window` of these; 0: all
  Normaliser normaliser = Normaliser::softmax;
  // Query head j reads the keys of head key_heads[j], head i of the result the values of head value_heads[i]; null: the
  // head with the same number.
  const int64_t *key_heads = nullptr, *value_heads = nullptr;
  const float* head_scales =
      nullptr;  // factor of each head of the result; null: 1; with head mixing the matrix includes it
  int64_t head_scales_stride = 0;  // on a GPU: batch stride
  // A backward pass follows, which recomputes the probabilities: the forward pass rounds logits in the same way.
  bool gradient = true;

  // Dropout of probabilities; none if its threshold is 0. Element dropout_first + i * dropout_row + j of the stream
  // decides the probability of query i and key j; heads follow each other in the stream. dropout_row >= keys.
  // dropout_first is the first element of the present batch row on a CPU (plain attention: of the present head), and of
  // row 0, head 0 on a GPU.
  Dropout dropout = {};
  uint64_t dropout_first = 0;
  int64_t dropout_row = 0;
  int dropout_heads = 0;               // on a GPU: heads of a batch row in the stream
  bool dropout_before_mixing = false;  // drops probabilities before mixing, not after it

  int in_heads = 0, out_heads = 0;  // heads of queries and keys; heads of the result and of values
  int key_size = 0,
      value_size = 0;  // size of a query or key; of a value. On a GPU at most the size the kernel was compiled for
  const int64_t* key_lengths = nullptr;  // on a GPU: (batch): number of real keys of each row; null: all
  bool aligned = false;                  // on a GPU: all rows begin and end at multiples of 16 bytes

  // Head mixing, P̄_i = Σ_j m[j, i] P_j: the matrix (in_heads, out_heads) of query t of batch row b is at b *
  // matrix_batch_stride + t * matrix_query_stride; likewise its transpose, which a GPU's backward pass reads.
  const float *matrix = nullptr, *matrix_transposed = nullptr;
  int64_t matrix_batch_stride = 0, matrix_query_stride = 0;  // the second is 0 if all queries share a matrix

  RelativeParams relative = {};

  // On a CPU only.
  int64_t head = 0;      // plain attention: the present head, an index of u, v, r and head_scales
  int64_t max_keys = 0;  // head mixing: maximum keys of any row; with l2_bytes it fixes the tiling of queries and keys
  int64_t l2_bytes = 0;  // size of the second-level cache (cpu/level.h)
  // bf16 matrix products, except for relative positions and few queries; null: products in fp32. Always null for fp32
  // tensors. Plain attention: requires AVX-512.
  const Bf16Gemm* bf16 = nullptr;

  constexpr bool has_relative() const { return relative.u != nullptr; }
  constexpr bool has_dropout() const { return dropout.threshold != 0; }
  constexpr int64_t key_head(int64_t j) const { return key_heads != nullptr ? key_heads[j] : j; }
  constexpr int64_t value_head(int64_t i) const { return value_heads != nullptr ? value_heads[i] : i; }
  float head_scale(int64_t i) const { return head_scales != nullptr ? head_scales[i] : 1; }
  // Return the range of keys, [visible_begin, visible_end), that query i sees.
  int64_t visible_end(int64_t i) const { return causal ? keys - queries + i + 1 : keys; }
  int64_t visible_begin(int64_t i) const { return window > 0 ? std::max<int64_t>(0, visible_end(i) - window) : 0; }
  // Returns the matrix, or transpose, shared by all queries of row b; null if each query has its own.
  constexpr const float* shared_matrix(const float* matrices, int64_t b) const {
    return matrix_query_stride == 0 ? matrices + b * matrix_batch_stride : nullptr;
  }
};

}  // namespace mh::kernels
