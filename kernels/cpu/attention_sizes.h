// Sizes of key spans and scratch memory of plain attention.
#pragma once

#include "cpu/block_products.h"
#include "cpu/dropout_decisions.h"
#include "cpu/relative.h"

namespace mh::kernels {

// Relative positions use fp32, since their biases are added in fp32.
MH_INLINE bool uses_bf16_gemm(const AttentionParams& params) {
  return params.bf16 != nullptr && !params.has_relative();
}

MH_INLINE int64_t distances_scratch(const AttentionParams& params, int64_t span) {
  return params.has_relative() ? kBlock * (distances_of(span, kBlock) + params.key_size) : 0;
}

// Scratch of decide_query(), in whole groups.
MH_INLINE int64_t decisions_scratch(const AttentionParams& params, int64_t span) {
  return params.has_dropout() ? span + 2 * kDropoutGroup : 0;
}

// Returns the size of a key span, a multiple of 64 as products may need: `tiles` tiles of a block take a quarter of the
// cache, for any key size. Measured at n = 16384: a backward pass takes 0.6 of the time without spans, and half or
// twice the span changes nothing.
MH_INLINE int64_t span_of(const AttentionParams& params, int64_t tiles) {
  constexpr int64_t grain = 64;
  const int64_t key_bytes = tiles * kBlock * static_cast<int64_t>(sizeof(float));
  const int64_t most = std::max<int64_t>(1, params.l2_bytes / 4 / key_bytes / grain) * grain;
  return std::min(most, (params.keys + grain - 1) / grain * grain);
}
MH_INLINE int64_t forward_span(const AttentionParams& params) { return span_of(params, 1); }
MH_INLINE int64_t backward_span(const AttentionParams& params) { return span_of(params, 2); }

// Row stride of a tile: one cache line more than the span, so that rows are not a power of two apart.
MH_INLINE int64_t row_of(int64_t span) { return span + lanes; }

}  // namespace mh::kernels
