// Dropout whose decisions are a pure function of the element's position: Philox-4x32-10, four positions a block.
#pragma once

#include <cstdint>

namespace mh::kernels {

struct DropoutPlan {
  uint32_t key[2];       // of the random stream
  uint32_t update, site;
  uint32_t threshold;    // an element is kept when its 32-bit word is at least this: p * 2^32
  float scale;           // 1 / (1 - p)
};

// out[i] = keep(first + i) ? x[i] * scale : 0 for i in [0, count). x and out may be the same.
void dropout(const DropoutPlan& plan, uint64_t first, int64_t count, const float* x, float* out);

}  // namespace mh::kernels
