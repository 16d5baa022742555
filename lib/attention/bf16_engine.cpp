#include "attention/bf16_engine.h"

#include <ATen/native/CPUBlas.h>

#include "cpu/level.h"

namespace mh::attention {

namespace {

void product(int64_t m, int64_t n, int64_t k, int64_t lda, int64_t ldb, int64_t ldc, bool add, const uint16_t* a,
             const uint16_t* b, float* c) {
  at::native::cpublas::brgemm(m, n, k, lda, ldb, ldc, add, reinterpret_cast<const at::BFloat16*>(a),
                              reinterpret_cast<const at::BFloat16*>(b), c);
}

}  // namespace

const kernels::Bf16Engine* bf16_engine(at::ScalarType type) {
  static const kernels::Bf16Engine engine{product};
  const bool fast = kernels::level() >= kernels::Level::avx512_bf16 && at::globalContext().hasMKLDNN();
  return fast && type == at::kBFloat16 ? &engine : nullptr;
}

WithEngine::~WithEngine() {
  if (used_) at::native::cpublas::brgemm_release();
}

}  // namespace mh::attention
