// Applies dropout to a range of elements, and instantiates DropoutLoops for one instruction set, for fp32 and bf16.
#include "cpu/dropout.h"

#include <algorithm>

#include "cpu/dropout_mask.h"

namespace mh::kernels {

template <SimdLevel L, class T>
void DropoutLoops<L, T>::apply(const DropoutParams& params, uint64_t stream_offset, const T* x, T* y, int64_t count) {
  float dropout_mask[kDropoutGroupSize];
  for (int64_t offset = 0; offset < count;) {
    uint64_t position = stream_offset + static_cast<uint64_t>(offset);
    int64_t group_offset = static_cast<int64_t>(position % kDropoutGroupSize);
    int64_t n = std::min<int64_t>(kDropoutGroupSize - group_offset, count - offset);
    dropout_mask_group(params, (position - static_cast<uint64_t>(group_offset)) / 4, dropout_mask);
    int64_t i = 0;
    for (; i + lanes <= n; i += lanes) {
      Floats v, factors;
      load(x + offset + i, v);
      load(dropout_mask + group_offset + i, factors);
      store(apply_dropout_mask(factors, v), y + offset + i);
    }
    for (; i < n; ++i)
      from_float(apply_dropout_mask(dropout_mask[group_offset + i], to_float(x[offset + i])), y[offset + i]);
    offset += n;
  }
}

template struct DropoutLoops<kSimdLevel, float>;
template struct DropoutLoops<kSimdLevel, uint16_t>;

}  // namespace mh::kernels
