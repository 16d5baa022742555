#include "cpu/dropout.h"

#include <algorithm>
#include <cmath>

#include "cpu/dropout_decisions.h"

namespace mh::kernels {

namespace {

template <class T>
MH_INLINE void apply(const Dropout& how, uint64_t first, const T* x, T* y, int64_t count) {
  float keep[kDropoutGroup];
  for (int64_t done = 0; done < count;) {
    uint64_t position = first + static_cast<uint64_t>(done);
    int64_t skip = static_cast<int64_t>(position % kDropoutGroup);
    int64_t n = std::min<int64_t>(kDropoutGroup - skip, count - done);
    decide(how, (position - static_cast<uint64_t>(skip)) / 4, keep);
    if (n == kDropoutGroup) {
      for (int i = 0; i < kDropoutGroup; i += lanes) {
        Floats v, k;
        load(x + done + i, v);
        load(keep + i, k);
        store(kept(k, v), y + done + i);
      }
    } else {
      for (int64_t i = 0; i < n; ++i) from_float(kept(keep[skip + i], to_float(x[done + i])), y[done + i]);
    }
    done += n;
  }
}

MH_VECTOR_LOOP void apply_f32(const Dropout& how, uint64_t first, const float* x, float* y, int64_t count) {
  apply(how, first, x, y, count);
}
MH_VECTOR_LOOP void apply_bf16(const Dropout& how, uint64_t first, const uint16_t* x, uint16_t* y, int64_t count) {
  apply(how, first, x, y, count);
}

}  // namespace

Dropout make_dropout(const uint32_t key[2], uint32_t update, uint32_t site, double p) {
  return {
      {key[0], key[1]}, update, site, static_cast<uint32_t>(std::ceil(p * 0x1p24)), static_cast<float>(1 / (1 - p))};
}

void dropout(const Dropout& how, uint64_t first, const float* x, float* y, int64_t count) {
  apply_f32(how, first, x, y, count);
}
void dropout(const Dropout& how, uint64_t first, const uint16_t* x, uint16_t* y, int64_t count) {
  apply_bf16(how, first, x, y, count);
}

}  // namespace mh::kernels
