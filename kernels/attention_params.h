// AttentionParams: parameters of the fused attention kernels, on CPUs and GPUs, with and without head mixing, and of
// the reference loops of the tests. Only cached_attention() has parameters of another type (cpu/cached_attention.h).
#pragma once

#include <algorithm>
#include <cstdint>

#include "dropout_params.h"
#include "normaliser.h"

namespace mh::kernels {

struct Bf16Gemm;  // cpu/bf16_gemm.h

// A range of consecutive keys, [first_key, first_key + num_keys), whose distances to a query are consecutive rows of
// RelativeParams::r: the distance between query t and key s belongs to row
// `first_row + (queries - 1 - t) + (s - first_key)`.
struct KeyRange {
  int64_t first_key, num_keys, first_row;
};

// Relative positions of Transformer-XL (Dai et al. 2019, section 3.3): the logit of query t of head j and key s is
// scale * ((q + u_j) · k + (q + v_j) · r_j[distance]). On a CPU, u, v and r are fp32, and their rows are padded with
// zeros to a multiple of 16 elements. On a GPU, u and v are fp32, r has the element type of the queries, and no row is
// padded.
struct RelativeParams {
  // On a CPU, number of rows of zeros after the last distance in each head of r. A tile of 64 queries under a causal
  // mask reads 63 rows past the last distance, for masked keys, and matrix products round the number of rows up to a
  // multiple of 16.
  static constexpr int kPaddingRows = 80;
  // Content bias u and position bias v, (heads, key_size); null: no relative positions.
  const float *u = nullptr, *v = nullptr;
  const void* r = nullptr;                    // (heads, num_distances, key_size); each row is contiguous
  int64_t head_stride = 0, row_stride = 0;    // strides of r, elements
  const KeyRange* key_ranges = nullptr;       // ranges that cover all keys, in increasing order
  int num_distances = 0, num_key_ranges = 0;  // rows of r per head, on a CPU including kPaddingRows; size of key_ranges
  const float* r_transposed = nullptr;        // on a CPU: r with each head transposed, (heads, key_size, num_distances)
};

// Position bias: a number that is added to the logit of query t of head j and key s, and depends on their distance only
// (ALiBi, Press et al. 2022; T5, Raffel et al. 2020). The biases are fp32; AttentionParams::scale does not multiply
// them.
struct PositionBiasParams {
  // (heads, num_distances), each row contiguous; null: no position bias. The distance between query t and key s belongs
  // to column `first_row + (queries - 1 - t) + (s - first_key)` of the key range of s.
  const float* bias = nullptr;
  int64_t head_stride = 0;                    // elements
  const KeyRange* key_ranges = nullptr;       // ranges that cover all keys, in increasing order
  int num_distances = 0, num_key_ranges = 0;  // columns of bias; size of key_ranges
};

// Grouped-query attention: returns the key/value head that head `head` reads; `head_of`: null, each head reads the
// key/value head of the same index.
constexpr int64_t kv_head(const int64_t* head_of, int64_t head) { return head_of != nullptr ? head_of[head] : head; }

// Parameters of one call. Pointers refer to memory of the device that runs the kernel.
struct AttentionParams {
  // Numbers of queries and keys of a batch row. On a GPU `keys` includes padding keys, on a CPU it does not. If `keys`
  // is 0, the output is zero.
  int64_t queries = 0, keys = 0;
  float scale = 1;      // factor of the logits; positive on a GPU
  bool causal = false;  // query i attends to keys 0 … `keys - queries + i`; requires `queries <= keys`
  // With `causal`: a query attends to the last `window` keys up to its own position. Without: query i attends to the
  // keys j with |i - j| < window. 0: to all.
  int64_t window = 0;
  Normaliser normaliser = Normaliser::softmax;
  // Grouped-query attention: query head j reads head k_head_of[j] of k, and value head i reads head v_head_of[i] of v;
  // null: the head of the same index.
  const int64_t *k_head_of = nullptr, *v_head_of = nullptr;
  // Factor of each value head, (value_heads); null: 1. With head mixing the mixing matrix includes the factors.
  const float* head_scales = nullptr;
  int64_t head_scales_stride = 0;  // batch stride of head_scales on a GPU; 0: the batch rows share the factors
  // Whether a backward pass follows. If so, the decode kernel is not used: it rounds logits differently from the
  // backward pass, which recomputes the logits.
  bool has_backward = true;

  // Dropout of probabilities; threshold 0: none. Element dropout_offset + h * dropout_head_stride + i *
  // dropout_row_stride + j of the random stream decides whether the probability of query i and key j in head h of a
  // batch row is dropped. On a GPU, dropout_offset is the first element of batch row 0, and batch row b begins
  // b * dropout_batch_stride elements later. On a CPU, dropout_offset is the first element of the current batch row
  // with head mixing, and of the current head without it, where h is 0.
  DropoutParams dropout = {};
  uint64_t dropout_offset = 0;
  int64_t dropout_batch_stride = 0, dropout_head_stride = 0, dropout_row_stride = 0;
  bool dropout_before_mixing = false;  // whether dropout precedes head mixing; otherwise it follows head mixing

  // Number of query heads; number of value heads, which is also the number of heads of the mixed probabilities and of
  // the output.
  int heads = 0, value_heads = 0;
  // Elements of a query or key of one head; elements of a value of one head. On a GPU at most the head size for which
  // the kernel is compiled.
  int key_size = 0, value_size = 0;
  // On a GPU: number of keys of each batch row without padding keys, (batch); null: `keys` in every batch row. With
  // head mixing, the values (v) of padding keys must be finite; otherwise the gradients of padding keys would be NaN
  // instead of 0.
  const int64_t* key_lengths = nullptr;
  bool has_aligned_rows = false;  // on a GPU: whether all rows begin and end at multiples of 16 bytes

  // Head mixing, P̄_i = Σ_j m[j, i] P_j. The matrix m (heads, value_heads) of query t of batch row b begins at element
  // b * matrix_batch_stride + t * matrix_query_stride of mixing_matrix, and its transpose, which the backward pass on a
  // GPU reads, at the same element of mixing_matrix_transposed. On a CPU, mixing_matrix is the address of the matrix of
  // query 0 of the current batch row.
  const float *mixing_matrix = nullptr, *mixing_matrix_transposed = nullptr;
  int64_t matrix_batch_stride = 0, matrix_query_stride = 0;  // matrix_query_stride 0: all queries share a matrix

  RelativeParams relative = {};

  // Soft cap: the logit x becomes soft_cap * tanh(x / soft_cap), after `scale` and the term of relative positions,
  // before the position bias and the mask; 0: none.
  float soft_cap = 0;
  PositionBiasParams position_bias = {};
  // (heads), fp32: logit of a sink of each query head, a key without a value that every query sees (Xiao et al. 2024).
  // The softmax and the log-sum-exp include it, so that the probabilities of the keys add up to less than 1. The soft
  // cap and the position bias do not change it. Null: no sinks.
  const float* sinks = nullptr;

  // The following members are for CPUs only.
  int64_t head = 0;      // without head mixing: the current head, an index into u, v, r and head_scales
  int64_t max_keys = 0;  // head mixing: maximum of `keys` over the batch; determines the tiling together with l2_bytes
  int64_t l2_bytes = 0;  // size of the L2 cache of a core (cpu/simd_level.h)
  // Function for products of bf16 matrices; null: products in fp32. Null for fp32 tensors. Not used with relative
  // positions or by the decode kernel; without head mixing, used only with AVX-512.
  const Bf16Gemm* bf16_gemm = nullptr;

  constexpr bool has_relative_positions() const { return relative.u != nullptr; }
  constexpr bool has_position_bias() const { return position_bias.bias != nullptr; }
  constexpr bool has_dropout() const { return dropout.threshold != 0; }
  constexpr int64_t k_head(int64_t j) const { return kv_head(k_head_of, j); }
  constexpr int64_t v_head(int64_t i) const { return kv_head(v_head_of, i); }
  float head_scale(int64_t i) const { return head_scales != nullptr ? head_scales[i] : 1; }
  // Return the end and the beginning of [visible_begin(i), visible_end(i)), the range of keys to which query i attends.
  int64_t visible_end(int64_t i) const {
    if (causal) return keys - queries + i + 1;
    return window > 0 ? std::min(keys, i + window) : keys;
  }
  int64_t visible_begin(int64_t i) const {
    if (window == 0) return 0;
    return std::min(keys, std::max<int64_t>(0, causal ? visible_end(i) - window : i - window + 1));
  }
  // Returns the matrix of batch row b that all its queries share; null if each query has a matrix of its own.
  // `matrices` is `mixing_matrix` or `mixing_matrix_transposed`.
  constexpr const float* shared_matrix(const float* matrices, int64_t b) const {
    return matrix_query_stride == 0 ? matrices + b * matrix_batch_stride : nullptr;
  }
};

}  // namespace mh::kernels
