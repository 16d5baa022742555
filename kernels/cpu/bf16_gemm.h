// Products of small bf16 matrices by a library that the caller provides, such as LibTorch's oneDNN, which uses the
// processor's bf16 instructions (AVX512-BF16 or AMX).
#pragma once

#include <cstdint>

namespace mh::kernels {

// The sizes of a product c (m, n) = a (m, k) b (k, n), or c += a b if `add`, accumulated in fp32. Row r of a is at
// a + r * lda, and row r of c at c + r * ldc. The rows of b are interleaved in pairs: element (i, j) is at
// b[i / 2 * 2 * ldb + 2 * j + i % 2]. k is even; n is a multiple of 16 and at most 64.
struct Bf16GemmSizes {
  int64_t m, n, k, lda, ldb, ldc;
  bool add;
};

// The function of the caller's library that computes a product. Several threads may call it at the same time.
struct Bf16Gemm {
  void (*product)(const Bf16GemmSizes& sizes, const uint16_t* a, const uint16_t* b, float* c);
};

}  // namespace mh::kernels
