// Dropout whose decisions are a pure function of a counter: element i of a stream is dropped when the upper 24 bits of
// word i % 4 of Philox-4x32-10 at counter (i / 4, site, update) are below p * 2^24. Nothing is stored for the backward
// pass.
#pragma once

#include <cstdint>

namespace mh::kernels {

struct Dropout {
  uint32_t key[2];  // of the random stream
  uint32_t update;
  uint32_t site;
  uint32_t threshold;  // p * 2^24, rounded up
  float scale;         // 1 / (1 - p)
};

Dropout make_dropout(const uint32_t key[2], uint32_t update, uint32_t site, double p);

// y[i] = kept(first + i) ? x[i] * scale : 0, for i < count. x and y may be the same. The second takes bf16.
void dropout(const Dropout& how, uint64_t first, const float* x, float* y, int64_t count);
void dropout(const Dropout& how, uint64_t first, const uint16_t* x, uint16_t* y, int64_t count);

}  // namespace mh::kernels
