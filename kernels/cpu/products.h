// Products of small fp32 matrices, computed in register tiles, for operands that are in the cache.
#pragma once

#include <type_traits>

#include "cpu/matrix.h"
#include "cpu/vector.h"

namespace mh::kernels {

// The register tile of a product: accumulators (rows, 16 * num_vectors). Tile8x2 takes half of the registers of
// AVX-512, Tile4x1 half of the registers of AVX2, and Tile2x1 half of the registers of the baseline.
struct Tile8x2 {
  static constexpr int rows = 8, num_vectors = 2;
};
struct Tile4x1 {
  static constexpr int rows = 4, num_vectors = 1;
};
struct Tile2x1 {
  static constexpr int rows = 2, num_vectors = 1;
};
// The register tile of the instruction set.
using BestTile =
    std::conditional_t<kRegisterBytes == 64, Tile8x2, std::conditional_t<kRegisterBytes == 32, Tile4x1, Tile2x1>>;

// Computes one register tile of matmul(): c (rows, 16 * num_vectors) = a (rows, k) b (k, 16 * num_vectors), or c += a b
// if `add`.
template <int rows, int num_vectors, bool add>
MH_INLINE void matmul_tile(int64_t k, StridedMatrix a, Matrix<const float> b, Matrix<float> c) {
  Floats sum[rows][num_vectors];
  MH_UNROLL
  for (int i = 0; i < rows; ++i)
    for (int v = 0; v < num_vectors; ++v) {
      if constexpr (add) load(c.data + i * c.row_stride + v * lanes, sum[i][v]);
      else sum[i][v] = Floats{};
    }
  for (int64_t j = 0; j < k; ++j) {
    Floats right[num_vectors];
    for (int v = 0; v < num_vectors; ++v) load(b.data + j * b.row_stride + v * lanes, right[v]);
    for (int i = 0; i < rows; ++i) {
      const float left = a.data[i * a.row_stride + j * a.column_stride];
      for (int v = 0; v < num_vectors; ++v) sum[i][v] += left * right[v];
    }
  }
  MH_UNROLL
  for (int i = 0; i < rows; ++i)
    for (int v = 0; v < num_vectors; ++v) store(sum[i][v], c.data + i * c.row_stride + v * lanes);
}

// Computes c (m, n) = a (m, k) b (k, n), or c += a b if `add`. m is a multiple of 8, and n is a multiple of 16.
template <class RegisterTile, bool add>
MH_INLINE void matmul(int64_t m, int64_t n, int64_t k, StridedMatrix a, Matrix<const float> b, Matrix<float> c) {
  constexpr int rows = RegisterTile::rows, num_vectors = RegisterTile::num_vectors;
  const auto left = [&](int64_t y) { return StridedMatrix{a.data + y * a.row_stride, a.row_stride, a.column_stride}; };
  const auto right = [&](int64_t x) { return Matrix<const float>{b.data + x, b.row_stride}; };
  const auto result = [&](int64_t y, int64_t x) { return Matrix<float>{c.data + y * c.row_stride + x, c.row_stride}; };
  int64_t x = 0;
  for (; x + num_vectors * lanes <= n; x += num_vectors * lanes)
    for (int64_t y = 0; y < m; y += rows) matmul_tile<rows, num_vectors, add>(k, left(y), right(x), result(y, x));
  for (; x < n; x += lanes)
    for (int64_t y = 0; y < m; y += rows) matmul_tile<rows, 1, add>(k, left(y), right(x), result(y, x));
}

}  // namespace mh::kernels
