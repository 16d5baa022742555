// Products of small bf16 matrices by a library that the caller provides, such as LibTorch's oneDNN, which uses the
// processor's instructions for bf16 pairs or tiles.
#pragma once

#include <cstdint>

namespace mh::kernels {

// Computes c (m, n) = or += a (m, k) b (k, n), accumulated in fp32; row r of a is at a + r * lda, of c at c + r * ldc.
// Rows of b are interleaved in pairs, element (i, j) at b[i / 2 * 2 * ldb + 2 * j + i % 2]; k is even, n a multiple of
// 16 and at most 64.
struct Bf16Product {
  int64_t m, n, k, lda, ldb, ldc;
  bool add;
};

struct Bf16Gemm {
  void (*product)(const Bf16Product& sizes, const uint16_t* a, const uint16_t* b, float* c);
};

}  // namespace mh::kernels
