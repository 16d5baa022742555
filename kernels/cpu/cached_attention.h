// Attention of a new position of one row and head to the positions of a cache, which are read in place.
//
// Rows of a search that continue one hypothesis share its positions. To copy nothing when they diverge, a table holds
// the row of the storage for each position, and rows with a common prefix read the same memory.
#pragma once

#include <cstdint>

#include "cpu/simd.h"

namespace mh::kernels {

// The keys or values of a head: position t of row r, (size), is at data + r * row_stride + t * stride. T is float or
// uint16_t (bf16).
template <class T>
struct CachedRows {
  const T* data;
  int64_t row_stride, stride;
};

// Attention of one query. Sizes are multiples of 16.
template <class T>
struct CachedQuery {
  const T* q;  // (size)
  float scale;
  int64_t size;
  CachedRows<T> keys, values;
  const int32_t* rows;  // (length): row of each position
  int64_t length;
};

template <Level, class T>
struct CachedAttentionLoops {
  static void attend(const CachedQuery<T>& query, T* out, float* scratch);
};

// Returns the scratch memory of a call in floats.
inline int64_t cached_attention_scratch(int64_t length, int64_t size) { return size + (length + 15) / 16 * 16; }
// Computes out (size).
template <class T>
void cached_attention(const CachedQuery<T>& query, T* out, float* scratch) {
  at_level([&](auto at) { CachedAttentionLoops<at, T>::attend(query, out, scratch); });
}

}  // namespace mh::kernels
