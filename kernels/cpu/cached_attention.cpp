// Attention of one query to the key/value cache, instantiated for one instruction set, for fp32 and bf16 tensors.
#include "cpu/cached_attention.h"

#include "cpu/attention_row.h"

namespace mh::kernels {

namespace {

// Function object that returns the address of position t, which is in cache row cache_row_of[t].
template <class T>
struct CacheRowAddress {
  const CachedRows<T>& cache;
  const int32_t* cache_row_of;
  MH_INLINE const T* operator()(int64_t t) const {
    return cache.data + cache_row_of[t] * cache.row_stride + t * cache.position_stride;
  }
};

}  // namespace

template <SimdLevel L, class T>
void CachedAttentionLoops<L, T>::attend(const CachedQuery<T>& query, T* out, float* scratch) {
  const int64_t size = query.size;
  float* scaled_q = scratch;   // scaled query (size)
  float* s = scaled_q + size;  // logits (length rounded up to a multiple of 16)
  for (int64_t i = 0; i < size; i += lanes) {
    Floats v;
    load(query.q + i, v);
    v = v * query.scale;
    store(v, scaled_q + i);
  }
  attend_query(scaled_q, query.length, size,
               KeysAndValues{CacheRowAddress<T>{query.keys, query.cache_row_of},
                             CacheRowAddress<T>{query.values, query.cache_row_of}},
               1, s, out);
}

template struct CachedAttentionLoops<kSimdLevel, float>;
template struct CachedAttentionLoops<kSimdLevel, uint16_t>;

}  // namespace mh::kernels
