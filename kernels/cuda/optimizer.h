// The arguments of the GPU's optimiser kernels, which update any number of tensors by few launches (the rules for one
// number are in kernels/optimizer_rules.h). All pointers within are to device memory.
#pragma once

#include "optimizer_rules.h"

namespace mh::kernels {

// Numbers that a block takes, of one tensor.
constexpr int64_t kUpdateChunk = 8192;
inline int64_t chunks_of(int64_t count) { return (count + kUpdateChunk - 1) / kUpdateChunk; }

// One parameter.
template <class Plan>
struct Update {
  Plan plan;
  int64_t count;
  float* p;
  const float* g;
  float *first, *second;  // moments; second: of Adam alone
  uint16_t* copy;         // in bf16, overwritten; or null
};

struct Numbers {
  int64_t count;
  const float* x;
};

}  // namespace mh::kernels
