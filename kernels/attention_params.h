// The parameters of every fused attention, on every device, with head mixing or without. The kernels read them, and so
// do the plain loops that tests compare the kernels with.
#pragma once

#include <algorithm>
#include <cstdint>

#include "dropout_plan.h"
#include "normaliser.h"

namespace mh::kernels {

struct Bf16Gemm;  // cpu/bf16_gemm.h

// Keys that follow one another without a gap: `count` of them from key `first`. The distance of query t to key s among
// them has row `row` + queries - 1 - t + s - first of r.
struct Run {
  int64_t first, count, row;
};

// Relative positions of Transformer-XL (Dai et al. 2019, section 3.3): the logit of query t of head j and key s is
// scale * ((q + u_j) · k + (q + v_j) · r_j[distance]). On a CPU all rows are fp32, padded with zeros to a multiple of
// 16 elements; on a GPU u and v are fp32, rows are of the kernels' type and not padded.
struct RelativeParams {
  // Rows of zeros after the last distance, on a CPU: products of whole tiles read past it.
  static constexpr int kPaddingRows = 80;
  const float *u = nullptr, *v = nullptr;   // (heads, key_size); null: no relative positions
  const void* rows = nullptr;               // r: (heads, distances, key_size), a row contiguous
  int64_t head_stride = 0, row_stride = 0;  // of rows
  const Run* runs = nullptr;                // all keys in their order
  int distances = 0, num_runs = 0;          // distances: kPaddingRows included
  const float* transposed = nullptr;        // on a CPU: each head's r transposed, (heads, key_size, distances)
};

// Pointers are to memory of the device at hand.
struct AttentionParams {
  // One row of the batch. Without a key the result is zero.
  int64_t queries = 0, keys = 0;
  float scale = 1;      // of the logits; on a GPU positive
  bool causal = false;  // query i sees keys 0 … keys - queries + i; queries <= keys
  int64_t window = 0;   // causal: of these the last `window`; 0: all
  Normaliser normaliser = Normaliser::softmax;
  // Query head j reads the keys of head key_heads[j], head i of the result the values of head value_heads[i]; null: of
  // the head with the same number.
  const int64_t *key_heads = nullptr, *value_heads = nullptr;
  const float* head_scales = nullptr;  // factor of each head of the result; null: 1; with a matrix it is part of that
  int64_t head_scales_stride = 0;      // on a GPU: from row to row of the batch
  // A backward pass follows: logits are rounded as it will round them, which computes the probabilities again.
  bool gradient = true;

  // Dropout of probabilities, none where its threshold is 0. Element dropout_first + i * dropout_row + j of the stream
  // decides the probability of query i and key j; heads follow each other in the stream. dropout_row >= keys.
  // dropout_first is the first element of the row at hand on a CPU (plain attention: of the head at hand), and of row
  // 0, head 0 on a GPU.
  Dropout dropout = {};
  uint64_t dropout_first = 0;
  int64_t dropout_row = 0;
  int dropout_heads = 0;               // on a GPU: of a row, by which elements of the stream are counted
  bool dropout_before_mixing = false;  // drops the probabilities that are mixed, not the mixed ones

  int in_heads = 0, out_heads = 0;       // heads of queries and keys; heads of the result and of values
  int key_size = 0, value_size = 0;      // of a query or key; of a value. On a GPU up to the size it was compiled for
  const int64_t* key_lengths = nullptr;  // on a GPU: (batch), or null: only keys below are real
  bool aligned = false;                  // on a GPU: all rows begin and end at multiples of 16 bytes

  // Head mixing, P̄_i = Σ_j m[j, i] P_j: the matrix (in_heads, out_heads) of query t of row b at b * matrix_batch_stride
  // + t * matrix_query_stride, and the transpose of each, which a GPU's backward pass reads.
  const float *matrix = nullptr, *matrix_transposed = nullptr;
  int64_t matrix_batch_stride = 0, matrix_query_stride = 0;  // the second is 0 where all queries share a matrix

  RelativeParams relative = {};

  // On a CPU.
  int64_t head = 0;      // plain attention: the head at hand, of u, v, r and head_scales
  int64_t max_keys = 0;  // head mixing: of any row; with l2_bytes it fixes how queries and keys are tiled
  int64_t l2_bytes = 0;  // the second-level cache (cpu/level.h)
  // Multiplies bf16, except for relative positions and few queries; null: products are in fp32. Null for fp32. Plain
  // attention: the processor has AVX-512.
  const Bf16Gemm* bf16 = nullptr;

  constexpr bool has_relative() const { return relative.u != nullptr; }
  constexpr bool has_dropout() const { return dropout.threshold != 0; }
  constexpr int64_t key_head(int64_t j) const { return key_heads != nullptr ? key_heads[j] : j; }
  constexpr int64_t value_head(int64_t i) const { return value_heads != nullptr ? value_heads[i] : i; }
  float head_scale(int64_t i) const { return head_scales != nullptr ? head_scales[i] : 1; }
  // Query i sees the keys from visible_begin to visible_end - 1.
  int64_t visible_end(int64_t i) const { return causal ? keys - queries + i + 1 : keys; }
  int64_t visible_begin(int64_t i) const { return window > 0 ? std::max<int64_t>(0, visible_end(i) - window) : 0; }
  // The matrix, or its transpose, that all queries of row b share, or null.
  constexpr const float* shared_matrix(const float* matrices, int64_t b) const {
    return matrix_query_stride == 0 ? matrices + b * matrix_batch_stride : nullptr;
  }
};

}  // namespace mh::kernels
