// The tensor library's products of bf16 for the kernels of attention: tiles (AMX) where the processor has them, pairs
// of bf16 (AVX-512) where it has those.
#pragma once

#include <ATen/ATen.h>

#include "cpu/bf16_engine.h"

namespace mh::attention {

// For tensors of this type on this processor; null where products are in fp32.
const kernels::Bf16Engine* bf16_engine(at::ScalarType type);

// While a thread may use an engine: it gives the processor's tiles back, which would slow down what follows.
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
