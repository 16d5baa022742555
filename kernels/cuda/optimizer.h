// Arguments of the GPU's optimiser kernels, which update any number of tensors in few launches (rules for one element:
// kernels/optimizer_rules.h). All pointers inside are to device memory.
#pragma once

#include "optimizer_rules.h"

namespace mh::kernels {

// Elements of one tensor that a block updates.
constexpr int64_t kUpdateChunk = 8192;
inline int64_t chunks_of(int64_t count) { return (count + kUpdateChunk - 1) / kUpdateChunk; }

// One parameter.
template <class Plan>
struct Update {
  Plan plan;
  int64_t count;
  float* p;
  const float* g;
  float *first, *second;  // moments; second: only with Adam
  uint16_t* copy;         // bf16 copy, overwritten; may be null
};

struct FloatSpan {
  int64_t count;
  const float* x;
};

}  // namespace mh::kernels
