// Attention of one query to the key/value cache, instantiated for one instruction set, for fp32 and bf16 tensors.
#include "cpu/cached_attention.h"

#include "cpu/attention_row.h"

namespace mh::kernels {

namespace {

// Function object that returns, for an index j, the address of position `first` + j, which is in cache row
// cache_row_of[first + j].
template <class T>
struct CacheRowAddress {
  const CachedRows<T>& cache;
  const int32_t* cache_row_of;
  int64_t first;
  MH_INLINE const T* operator()(int64_t j) const {
    const int64_t t = first + j;
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
  const int64_t first = query.first_visible, num_keys = query.length - first;
  const auto add_terms = [&](float* x) {
    if (query.soft_cap > 0) cap_logits(query.soft_cap, num_keys, x, nullptr);
    if (query.position_bias != nullptr) add_to(query.position_bias + first, num_keys, x);
  };
  attend_query(scaled_q, size,
               KeysAndValues{CacheRowAddress<T>{query.keys, query.cache_row_of, first},
                             CacheRowAddress<T>{query.values, query.cache_row_of, first}, num_keys},
               LogitTerms{add_terms, query.sink}, 1, s, out);
}

template struct CachedAttentionLoops<kSimdLevel, float>;
template struct CachedAttentionLoops<kSimdLevel, uint16_t>;

}  // namespace mh::kernels
