// Attention of one query to the key/value cache, which is read in place. The query belongs to the new position of
// one hypothesis, in one head.
//
// Hypotheses of a beam search that continue the same prefix share its keys and values: CachedQuery::cache_row_of has
// the cache row of each position, so hypotheses with a common prefix read the same memory, and no key or value is
// copied when the hypotheses diverge.
//
// Tiling: a call computes one query of one head: first the logits of all positions, each with a vector of 16 partial
// sums, then the output, up to 64 columns at a time in 4 vectors of accumulators. The scratch memory has the scaled
// query and the logits: 2.25 KiB for 512 positions of size 64, while the keys and values take 128 KiB in bf16.
#pragma once

#include <cstdint>

#include "ceil_div.h"
#include "cpu/simd.h"

namespace mh::kernels {

// The cached keys or values of one head: position t of cache row r, a vector (size), is at
// data + r * row_stride + t * position_stride. T is float or uint16_t (bf16).
template <class T>
struct CachedRows {
  const T* data;
  int64_t row_stride, position_stride;
};

// The inputs of attention of one query. `size`, the number of elements of a key or value, is a multiple of 16. The
// struct shares no part with AttentionParams, whose position bias and sinks belong to all heads and have strides and
// key ranges: this struct has the row of the bias and the sink of one head. Only `scale` and `soft_cap` are the same.
template <class T>
struct CachedQuery {
  const T* q;  // query (size)
  float scale;
  int64_t size;
  CachedRows<T> keys, values;
  const int32_t* cache_row_of;  // (length): cache row of each position
  int64_t length;
  int64_t first_visible = 0;             // the query sees the positions first_visible … length - 1
  float soft_cap = 0;                    // AttentionParams::soft_cap
  const float* position_bias = nullptr;  // (length): number added to the logit of each position; null: none
  const float* sink = nullptr;           // logit of the sink; null: none
};

// cached_attention(), compiled for one instruction set (cpu/simd.h).
template <SimdLevel, class T>
struct CachedAttentionLoops {
  static void attend(const CachedQuery<T>& query, T* out, float* scratch);
};

// Returns the number of floats of scratch memory for one call of cached_attention().
inline int64_t cached_attention_scratch_floats(int64_t length, int64_t size) { return size + round_up(length, 16); }
// Computes `out` (size) = softmax(scale * q Kᵀ) V over positions query.first_visible … query.length - 1.
template <class T>
void cached_attention(const CachedQuery<T>& query, T* out, float* scratch) {
  dispatch_simd_level([&](auto simd_level) { CachedAttentionLoops<simd_level, T>::attend(query, out, scratch); });
}

}  // namespace mh::kernels
