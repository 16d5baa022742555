// Residual sum, dropout and layer norm of rows, and their gradients. Tiling: one block computes one row, which stays in
// shared memory. Y: type of y.
#pragma once

#include "cuda/dropout.h"
#include "cuda/sum_norm.h"

namespace mh::kernels {

// The members of SumNorm that a kernel takes by value.
struct SumNormRow {
  int64_t size;
  const float *weight, *bias;
  float epsilon;
  bool drops;
  Dropout dropping;
  uint64_t dropout_first;
  explicit SumNormRow(const SumNorm& how)
      : size(how.size),
        weight(how.weight),
        bias(how.bias),
        epsilon(how.epsilon),
        drops(how.dropout != nullptr),
        dropping(drops ? *how.dropout : Dropout{}),
        dropout_first(how.dropout_first) {}
  // Applies dropout to row r from column i on.
  MH_DEVICE void drop(int64_t r, int64_t i, float (&x)[4]) const {
    if (drops) drop_four(dropping, dropout_first + static_cast<uint64_t>(r * size + i), x);
  }
};

template <class Y>
struct SumNormRows {
  static constexpr int kThreads = kRowThreads;
  SumNormRow how;
  SumNormTensors x;

  // The vectors of the row's sums follow the shares.
  static size_t bytes(int64_t size) { return sizeof(Shares) + static_cast<size_t>(size + 6) / 4 * sizeof(Four<float>); }

  template <class Thread>
  MH_DEVICE void operator()(const Thread& thread, void* memory) const {
    const int64_t r = thread.block_x(), size = how.size, at = r * size, shift = at % 4;
    Shares& shares = *static_cast<Shares*>(memory);
    float* sums = reinterpret_cast<float*>(&shares + 1) + shift;  // sum of the row's first element
    const float by_size = 1 / static_cast<float>(size);
    float total = 0;
    each_four(thread, shift, size, [&](int64_t i) {
      float a[4], b[4];
      load_four(thread, x.x + at, i, size, a);
      load_four(thread, static_cast<const Y*>(x.y) + at, i, size, b);
      how.drop(r, i, b);
      MH_FOR (k, 4) a[k] += b[k], total += a[k];
      if (x.sum != nullptr) store_four(thread, x.sum + at, i, size, a);
      store_four(thread, sums, i, size, a);
    });
    if (x.norm == nullptr) return;
    const float mean = sum_over_block(thread, total, shares) * by_size;
    float squares = 0;
    each_four(thread, shift, size, [&](int64_t i) {
      float a[4];
      load_four(thread, sums, i, size, a, mean);
      MH_FOR (k, 4) squares += (a[k] - mean) * (a[k] - mean);
    });
    const float factor = 1 / std::sqrt(sum_over_block(thread, squares, shares) * by_size + how.epsilon);
    each_four(thread, shift, size, [&](int64_t i) {
      float a[4], w[4], b[4];
      load_four(thread, sums, i, size, a);
      load_four(thread, how.weight, i, size, w);
      load_four(thread, how.bias, i, size, b);
      MH_FOR (k, 4) a[k] = (a[k] - mean) * factor * w[k] + b[k];
      store_four(thread, x.norm + at, i, size, a);
    });
    if (x.mean != nullptr && thread.index() == 0) x.mean[r] = mean, x.factor[r] = factor;
  }
};

// With s' = (s - mean) * factor and g = weight * dn, the norm gives factor * (g - mean of g - s' * mean of g s').
template <class Y>
struct SumNormGradient {
  static constexpr int kThreads = kRowThreads;
  SumNormRow how;
  SumNormTensors x;

  template <class Thread>
  MH_DEVICE void operator()(const Thread& thread, void* memory) const {
    const int64_t r = thread.block_x(), size = how.size, at = r * size, shift = at % 4;
    Shares& shares = *static_cast<Shares*>(memory);
    const float by_size = 1 / static_cast<float>(size);
    const bool norms = x.dnorm != nullptr;
    const float mean = norms ? x.mean[r] : 0, factor = norms ? x.factor[r] : 0;
    const auto load = [&](int64_t i, float(&normed)[4], float(&g)[4]) {
      float w[4];
      load_four(thread, x.sum + at, i, size, normed, mean);
      load_four(thread, x.dnorm + at, i, size, g);
      load_four(thread, how.weight, i, size, w);
      MH_FOR (k, 4) normed[k] = (normed[k] - mean) * factor, g[k] *= w[k];
    };
    float of_g = 0, of_gs = 0;  // means
    if (norms) {
      each_four(thread, shift, size, [&](int64_t i) {
        float s[4], g[4];
        load(i, s, g);
        MH_FOR (k, 4) of_g += g[k], of_gs += g[k] * s[k];
      });
      of_g = sum_over_block(thread, of_g, shares) * by_size;
      of_gs = sum_over_block(thread, of_gs, shares) * by_size;
    }
    each_four(thread, shift, size, [&](int64_t i) {
      float d[4] = {0, 0, 0, 0};
      if (x.dsum != nullptr) load_four(thread, x.dsum + at, i, size, d);
      if (norms) {
        float s[4], g[4];
        load(i, s, g);
        MH_FOR (k, 4) d[k] += (g[k] - of_g - s[k] * of_gs) * factor;
      }
      store_four(thread, x.dx + at, i, size, d);
      if (x.dy == nullptr) return;
      how.drop(r, i, d);
      store_four(thread, static_cast<Y*>(x.dy) + at, i, size, d);
    });
  }
};

// Gradients of weight and bias over a chunk of rows; one thread computes one column.
struct SumNormWeightGradient {
  static constexpr int kThreads = 128;
  int64_t size;
  SumNormTensors x;

  template <class Thread>
  MH_DEVICE void operator()(const Thread& thread, void*) const {
    const int64_t column = static_cast<int64_t>(thread.block_y()) * kThreads + thread.index();
    if (column >= size) return;
    const int64_t piece = thread.block_x(), first = piece * x.piece;
    const int64_t end = first + x.piece < x.rows ? first + x.piece : x.rows;
    float weight = 0, bias = 0;
    for (int64_t r = first; r < end; ++r) {
      const float g = x.dnorm[r * size + column];
      weight += g * (x.sum[r * size + column] - x.mean[r]) * x.factor[r];
      bias += g;
    }
    x.dweight[piece * size + column] = weight, x.dbias[piece * size + column] = bias;
  }
};

template <class Y, class Launcher>
const char* sum_norm(const Launcher& launcher, const SumNorm& how, const SumNormTensors& x) {
  using Body = SumNormRows<Y>;
  return launcher(Grid{static_cast<int>(x.rows)}, threads_for_row(how.size), Body::bytes(how.size),
                  Body{SumNormRow(how), x});
}

template <class Y, class Launcher>
const char* sum_norm_backward(const Launcher& launcher, const SumNorm& how, const SumNormTensors& x) {
  using Rows = SumNormGradient<Y>;
  using Columns = SumNormWeightGradient;
  const char* problem =
      launcher(Grid{static_cast<int>(x.rows)}, threads_for_row(how.size), sizeof(Shares), Rows{SumNormRow(how), x});
  if (problem != nullptr || x.dnorm == nullptr) return problem;
  return launcher(Grid{static_cast<int>((x.rows + x.piece - 1) / x.piece),
                       static_cast<int>((how.size + Columns::kThreads - 1) / Columns::kThreads)},
                  Columns::kThreads, 0, Columns{how.size, x});
}

}  // namespace mh::kernels
