// Implements the bf16 matrix products of the kernels with LibTorch's brgemm.
#include "attention/fused/bf16_gemm.h"

#include <ATen/native/CPUBlas.h>

#include "base/error.h"
#include "base/log.h"
#include "cpu/simd_level.h"

namespace mh::attention {

namespace {

void product(const kernels::Bf16GemmSizes& sizes, const uint16_t* a, const uint16_t* b, float* c) {
  at::native::cpublas::brgemm(sizes.m, sizes.n, sizes.k, sizes.lda, sizes.ldb, sizes.ldc, sizes.add,
                              reinterpret_cast<const at::BFloat16*>(a), reinterpret_cast<const at::BFloat16*>(b), c);
}

// Returns whether brgemm works on this processor. brgemm throws an exception if settings of LibTorch or oneDNN disable
// instructions of the processor.
bool is_brgemm_available() {
  try {
    alignas(64) const uint16_t zeros[2 * 16] = {};
    alignas(64) float result[16];
    product({1, 16, 2, 2, 16, 16, false}, zeros, zeros, result);
    at::native::cpublas::brgemm_release();
    return true;
  } catch (const c10::Error& e) {
    log_info(
        str("bf16 matrix products are computed in fp32, since LibTorch's brgemm failed: ", e.what_without_backtrace()));
    return false;
  }
}

}  // namespace

const kernels::Bf16Gemm* bf16_gemm(at::ScalarType type) {
  static const kernels::Bf16Gemm gemm{product};
  if (type != at::kBFloat16 || kernels::simd_level() < kernels::SimdLevel::avx512_bf16) return nullptr;
  static const bool is_available = is_brgemm_available();
  return is_available ? &gemm : nullptr;
}

Bf16GemmScope::~Bf16GemmScope() {
  if (has_gemm_) at::native::cpublas::brgemm_release();
}

}  // namespace mh::attention
