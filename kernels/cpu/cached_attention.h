// Attention of a new position of one row and head to those of a cache, each read where it was written.
//
// Rows of a search that go on from one hypothesis share what is behind them. So that nothing is copied when they part,
// a table says for each position which row of the storage holds it, and rows that share a past read the same memory.
#pragma once

#include <cstdint>

namespace mh::kernels {

// Position t of row r of a head's keys or values, (size), stands at data + r * row_stride + t * stride. T is float or
// uint16_t (bf16).
template <class T>
struct CachedRows {
  const T* data;
  int64_t row_stride, stride;
};

// q (size) and out (size); rows (length): of each position its row. size is a multiple of 16; scratch: floats, as many
// as cached_attention_scratch says.
int64_t cached_attention_scratch(int64_t length, int64_t size);
template <class T>
void cached_attention(const T* q, float scale, int64_t size, const CachedRows<T>& keys, const CachedRows<T>& values,
                      const int32_t* rows, int64_t length, T* out, float* scratch);

}  // namespace mh::kernels
