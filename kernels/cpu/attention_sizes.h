// Key spans and scratch memory of attention without head mixing.
#pragma once

#include "cpu/block_products.h"
#include "cpu/dropout_mask.h"
#include "cpu/relative.h"

namespace mh::kernels {

// Returns whether products are computed in bf16 by params.bf16_gemm. Relative positions use fp32 products, since their
// biases are added in fp32.
MH_INLINE bool uses_bf16_gemm(const AttentionParams& params) {
  return params.bf16_gemm != nullptr && !params.has_relative_positions();
}

// Returns the number of floats of scratch memory for the relative positions of one block of queries.
MH_INLINE int64_t distances_scratch_floats(const AttentionParams& params, int64_t span) {
  return params.has_relative_positions() ? kBlockQueries * (distance_row_stride(span, kBlockQueries) + params.key_size)
                                         : 0;
}

// Returns the size of the dropout mask of one query, in floats, with the padding that dropout_mask_range() writes.
MH_INLINE int64_t dropout_mask_scratch_floats(const AttentionParams& params, int64_t span) {
  return params.has_dropout() ? span + 2 * kDropoutGroupSize : 0;
}

// Returns the size of the derivatives of the soft cap of one query, in floats.
MH_INLINE int64_t cap_slopes_scratch_floats(const AttentionParams& params, int64_t span) {
  return params.soft_cap > 0 ? span + lanes : 0;
}

// Returns the number of keys of a span: the largest multiple of 64 such that `num_tiles` tiles of logits
// (kBlockQueries, span) take at most a quarter of the L2 cache; at least 64, and at most the number of keys, rounded up
// to a multiple of 64. bf16 products require multiples of 64. Measured at 16384 keys: the backward pass takes 0.6 times
// as long as with one span of all keys, and spans of half or twice the size take the same time.
MH_INLINE int64_t span_of(const AttentionParams& params, int64_t num_tiles) {
  constexpr int64_t key_multiple = 64;
  const int64_t logit_bytes_per_key = num_tiles * kBlockQueries * static_cast<int64_t>(sizeof(float));
  const int64_t max_span =
      std::max<int64_t>(1, params.l2_bytes / 4 / logit_bytes_per_key / key_multiple) * key_multiple;
  return std::min(max_span, round_up(params.keys, key_multiple));
}
MH_INLINE int64_t forward_span(const AttentionParams& params) { return span_of(params, 1); }
MH_INLINE int64_t backward_span(const AttentionParams& params) { return span_of(params, 2); }

// Returns the row stride of a tile of logits: one cache line more than the span, so that rows are not a power of two
// apart.
MH_INLINE int64_t row_stride_of(int64_t span) { return span + lanes; }

}  // namespace mh::kernels
