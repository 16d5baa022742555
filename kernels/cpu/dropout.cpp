#include "cpu/dropout.h"

#include <algorithm>
#include <cmath>

#include "cpu/vector.h"

namespace mh::kernels {

namespace {

constexpr int group = 4 * lanes;  // elements decided at once: four words of sixteen counters

// keep[i] = scale or 0 for the `group` elements that start at 4 * block.
MH_INLINE void decide(const Dropout& how, uint64_t block, float* keep) {
  uint32_t c0[lanes], c1[lanes], c2[lanes], c3[lanes];
  for (int i = 0; i < lanes; ++i) {
    uint64_t b = block + static_cast<uint64_t>(i);
    c0[i] = static_cast<uint32_t>(b);
    c1[i] = static_cast<uint32_t>(b >> 32);
    c2[i] = how.site;
    c3[i] = how.update;
  }
  uint32_t k0 = how.key[0], k1 = how.key[1];
  for (int round = 0; round < 10; ++round) {
    for (int i = 0; i < lanes; ++i) {
      uint64_t a = uint64_t{0xD2511F53} * c0[i];
      uint64_t b = uint64_t{0xCD9E8D57} * c2[i];
      c0[i] = static_cast<uint32_t>(b >> 32) ^ c1[i] ^ k0;
      c1[i] = static_cast<uint32_t>(b);
      c2[i] = static_cast<uint32_t>(a >> 32) ^ c3[i] ^ k1;
      c3[i] = static_cast<uint32_t>(a);
    }
    k0 += 0x9E3779B9;
    k1 += 0xBB67AE85;
  }
  for (int i = 0; i < lanes; ++i) {
    keep[4 * i] = (c0[i] >> 8) >= how.threshold ? how.scale : 0.0F;
    keep[4 * i + 1] = (c1[i] >> 8) >= how.threshold ? how.scale : 0.0F;
    keep[4 * i + 2] = (c2[i] >> 8) >= how.threshold ? how.scale : 0.0F;
    keep[4 * i + 3] = (c3[i] >> 8) >= how.threshold ? how.scale : 0.0F;
  }
}

template <class T>
MH_INLINE void apply(const Dropout& how, uint64_t first, const T* x, T* y, int64_t count) {
  float keep[group];
  for (int64_t done = 0; done < count;) {
    uint64_t position = first + static_cast<uint64_t>(done);
    int64_t skip = static_cast<int64_t>(position % group);
    int64_t n = std::min<int64_t>(group - skip, count - done);
    decide(how, (position - static_cast<uint64_t>(skip)) / 4, keep);
    if (n == group) {
      for (int i = 0; i < group; i += lanes) {
        Floats v, k;
        load(x + done + i, v);
        load(keep + i, k);
        v = k == 0.0F ? Floats{} : v * k;  // a dropped infinity is 0, not NaN
        store(v, y + done + i);
      }
    } else {
      for (int64_t i = 0; i < n; ++i) {
        float k = keep[skip + i];
        from_float(k == 0.0F ? 0.0F : to_float(x[done + i]) * k, y[done + i]);
      }
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
