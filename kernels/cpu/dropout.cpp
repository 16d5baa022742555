#include "cpu/dropout.h"

#include <algorithm>
#include <cmath>

#include "cpu/vector.h"

namespace mh::kernels {

namespace {

constexpr int group = 4 * lanes;  // elements decided at once: four words of sixteen counters

using Longs = uint64_t __attribute__((vector_size(64)));

// The low and high halves of factor * x, lane by lane: the even and the odd lanes' products, taken apart.
MH_INLINE void multiply(uint64_t factor, const Words& x, Words& low, Words& high) {
  constexpr uint64_t lower = 0xFFFFFFFF;
  Longs both, result;
  std::memcpy(&both, &x, sizeof both);
  Longs even = (both & lower) * factor, odd = (both >> 32) * factor;
  result = (even & lower) | (odd << 32);
  std::memcpy(&low, &result, sizeof low);
  result = (even >> 32) | (odd & ~lower);
  std::memcpy(&high, &result, sizeof high);
}

// keep[i] = scale or 0 for the `group` elements that start at 4 * block.
MH_INLINE void decide(const Dropout& how, uint64_t block, float* keep) {
  Words c0, c1, c2 = how.site - Words{}, c3 = how.update - Words{};
  for (int i = 0; i < lanes; ++i) {
    uint64_t b = block + static_cast<uint64_t>(i);
    c0[i] = static_cast<uint32_t>(b);
    c1[i] = static_cast<uint32_t>(b >> 32);
  }
  uint32_t k0 = how.key[0], k1 = how.key[1];
  for (int round = 0; round < 10; ++round) {
    Words a_low, a_high, b_low, b_high;
    multiply(0xD2511F53, c0, a_low, a_high);
    multiply(0xCD9E8D57, c2, b_low, b_high);
    c0 = b_high ^ c1 ^ k0;
    c1 = b_low;
    c2 = a_high ^ c3 ^ k1;
    c3 = a_low;
    k0 += 0x9E3779B9;
    k1 += 0xBB67AE85;
  }
  // From four vectors of one word of sixteen counters to the words of a counter side by side.
  constexpr Words low{0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23};
  constexpr Words high{8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
  constexpr Words pairs_low{0, 1, 16, 17, 2, 3, 18, 19, 4, 5, 20, 21, 6, 7, 22, 23};
  constexpr Words pairs_high{8, 9, 24, 25, 10, 11, 26, 27, 12, 13, 28, 29, 14, 15, 30, 31};
  Words ab0 = __builtin_shuffle(c0, c1, low), ab1 = __builtin_shuffle(c0, c1, high);
  Words cd0 = __builtin_shuffle(c2, c3, low), cd1 = __builtin_shuffle(c2, c3, high);
  Words words[4] = {__builtin_shuffle(ab0, cd0, pairs_low), __builtin_shuffle(ab0, cd0, pairs_high),
                    __builtin_shuffle(ab1, cd1, pairs_low), __builtin_shuffle(ab1, cd1, pairs_high)};
  Floats scale;
  fill(scale, how.scale);
  for (int i = 0; i < 4; ++i) {
    Floats k = (words[i] >> 8) >= how.threshold ? scale : Floats{};
    store(k, keep + i * lanes);
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
