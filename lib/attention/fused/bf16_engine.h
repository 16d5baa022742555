// LibTorch's bf16 matrix products for the attention kernels: AMX tiles if the processor has them, otherwise AVX-512
// products of pairs of bf16 numbers.
#pragma once

#include "cpu/bf16_engine.h"
#include "nn/aten.h"

namespace mh::attention {

// Returns the engine for tensors of this type on this processor; null if products are computed in fp32.
const kernels::Bf16Engine* bf16_engine(at::ScalarType type);

// Scope guard of a thread that uses an engine: the destructor releases the processor's AMX tiles, which would slow down
// the code that follows.
class WithEngine {
 public:
  explicit WithEngine(const kernels::Bf16Engine* engine) : used_(engine != nullptr) {}
  WithEngine(const WithEngine&) = delete;
  WithEngine& operator=(const WithEngine&) = delete;
  ~WithEngine();

 private:
  bool used_;
};

}  // namespace mh::attention
