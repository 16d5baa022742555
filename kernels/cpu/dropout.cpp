#include "cpu/dropout.h"

#include <algorithm>

#include "cpu/dropout_mask.h"

namespace mh::kernels {

template <Level L, class T>
void DropoutLoops<L, T>::apply(const Dropout& params, uint64_t first, const T* x, T* y, int64_t count) {
  float dropout_mask[kDropoutGroup];
  for (int64_t done = 0; done < count;) {
    uint64_t position = first + static_cast<uint64_t>(done);
    int64_t skip = static_cast<int64_t>(position % kDropoutGroup);
    int64_t n = std::min<int64_t>(kDropoutGroup - skip, count - done);
    dropout_mask_group(params, (position - static_cast<uint64_t>(skip)) / 4, dropout_mask);
    if (n == kDropoutGroup) {
      for (int i = 0; i < kDropoutGroup; i += lanes) {
        Floats v, k;
        load(x + done + i, v);
        load(dropout_mask + i, k);
        store(apply_dropout_mask(k, v), y + done + i);
      }
    } else {
      for (int64_t i = 0; i < n; ++i)
        from_float(apply_dropout_mask(dropout_mask[skip + i], to_float(x[done + i])), y[done + i]);
    }
    done += n;
  }
}

template struct DropoutLoops<kLevel, float>;
template struct DropoutLoops<kLevel, uint16_t>;

}  // namespace mh::kernels
