// LibTorch's bf16 matrix products for the attention kernels: AMX tiles if the processor has AMX, otherwise AVX512_BF16
// dot products.
#pragma once

#include "cpu/bf16_gemm.h"
#include "nn/aten.h"

namespace mh::attention {

// Returns the bf16 matrix products for tensors of this type on this processor; null if the kernels must compute
// products in fp32.
const kernels::Bf16Gemm* bf16_gemm(at::ScalarType type);

// Scope guard for a thread that computes with a Bf16Gemm. The destructor releases the processor's AMX tiles, which slow
// down other code until they are released; if `gemm` is null, the destructor does nothing.
class Bf16GemmScope {
 public:
  explicit Bf16GemmScope(const kernels::Bf16Gemm* gemm) : has_gemm_(gemm != nullptr) {}
  Bf16GemmScope(const Bf16GemmScope&) = delete;
  Bf16GemmScope& operator=(const Bf16GemmScope&) = delete;
  ~Bf16GemmScope();

 private:
  bool has_gemm_;
};

}  // namespace mh::attention
