#include "cpu/cached_attention.h"

#include "cpu/attention_row.h"

namespace mh::kernels {

namespace {

template <class T>
struct Through {
  const CachedRows<T>& from;
  const int32_t* rows;
  MH_INLINE const T* operator()(int64_t t) const { return from.data + rows[t] * from.row_stride + t * from.stride; }
};

template <class T>
MH_INLINE void attend(const T* q, float scale, int64_t size, const CachedRows<T>& keys, const CachedRows<T>& values,
                      const int32_t* rows, int64_t length, T* out, float* scratch) {
  float* scaled = scratch;   // (size)
  float* s = scaled + size;  // (padded length)
  for (int64_t i = 0; i < size; i += lanes) {
    Floats v;
    load(q + i, v);
    v = v * scale;
    store(v, scaled + i);
  }
  attend_one(scaled, length, size, Through<T>{keys, rows}, Through<T>{values, rows}, 1, s, out);
}

#define MH_CACHED(T, name)                                                                                    \
  MH_VECTOR_LOOP void attend_##name(const T* q, float scale, int64_t size, const CachedRows<T>& keys,         \
                                    const CachedRows<T>& values, const int32_t* rows, int64_t length, T* out, \
                                    float* scratch) {                                                         \
    attend(q, scale, size, keys, values, rows, length, out, scratch);                                         \
  }
MH_CACHED(float, fp32)
MH_CACHED(uint16_t, bf16)
#undef MH_CACHED

}  // namespace

int64_t cached_attention_scratch(int64_t length, int64_t size) { return size + padded(length); }

template <>
void cached_attention(const float* q, float scale, int64_t size, const CachedRows<float>& keys,
                      const CachedRows<float>& values, const int32_t* rows, int64_t length, float* out,
                      float* scratch) {
  attend_fp32(q, scale, size, keys, values, rows, length, out, scratch);
}
template <>
void cached_attention(const uint16_t* q, float scale, int64_t size, const CachedRows<uint16_t>& keys,
                      const CachedRows<uint16_t>& values, const int32_t* rows, int64_t length, uint16_t* out,
                      float* scratch) {
  attend_bf16(q, scale, size, keys, values, rows, length, out, scratch);
}

}  // namespace mh::kernels
