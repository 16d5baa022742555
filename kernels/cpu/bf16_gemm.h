// Products of small matrices of bf16 by an engine that the caller brings, such as the tensor library's, which knows the
// processor's instructions for pairs of bf16 or for whole tiles.
#pragma once

#include <cstdint>

namespace mh::kernels {

// c (m, n) = or += a (m, k) b (k, n), in fp32; row r of a at a + r * lda, of c at c + r * ldc. Rows of b are joined in
// pairs, element (i, j) at b[i / 2 * 2 * ldb + 2 * j + i % 2]; k is even, n a multiple of 16 and at most 64.
struct Bf16Product {
  int64_t m, n, k, lda, ldb, ldc;
  bool add;
};

struct Bf16Gemm {
  void (*product)(const Bf16Product& sizes, const uint16_t* a, const uint16_t* b, float* c);
};

}  // namespace mh::kernels
