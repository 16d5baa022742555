// Residual sum, dropout and norm (sum_norm_params.h), and their gradients, on a GPU. Tiling: except for the gradients
// of weight and bias, one block computes one row; the forward pass holds the sums of the row in shared memory. The
// kernels of a layer norm also serve the RMS norm, with 0 in place of the mean. Y: type of y and dy.
//
// A block is one warp, or 8 warps for rows of more than 1024 elements, and a thread computes every 32nd, or every
// 256th, vector of four elements. Shared memory: 32 bytes for reductions, and in the forward pass 16 bytes for each of
// ⌊(size + 6) / 4⌋ vectors: together 4144 bytes for rows of 1024 elements. A thread holds up to four vectors, 16 fp32
// numbers, and two partial sums in registers, of which it takes at most 57. For the gradients of weight and bias a
// thread of a block of 128 threads sums one column of a chunk of rows, without shared memory: two sums in registers.
#pragma once

#include "ceil_div.h"
#include "cuda/dropout.h"
#include "cuda/sum_norm.h"

namespace mh::kernels {

// SumNormParams without pointers to host memory, as a kernel argument: holds the dropout parameters by value.
struct SumNormArguments {
  int64_t size;
  const float *weight, *bias;
  float epsilon;
  NormType type;
  bool has_dropout;
  DropoutParams dropout;
  uint64_t dropout_offset;
  int64_t dropout_batch_stride, batch_row_size;
  explicit SumNormArguments(const SumNormParams& params)
      : size(params.size),
        weight(params.weight),
        bias(params.bias),
        epsilon(params.epsilon),
        type(params.type),
        has_dropout(params.dropout != nullptr),
        dropout(has_dropout ? *params.dropout : DropoutParams{}),
        dropout_offset(params.dropout_offset),
        dropout_batch_stride(params.dropout_batch_stride),
        batch_row_size(params.batch_row_size) {}
  // Applies dropout, if has_dropout, to x, the elements i … i + 3 of row r.
  MH_DEVICE void apply_dropout(int64_t r, int64_t i, float (&x)[4]) const {
    if (!has_dropout) return;
    const int64_t begin = r / batch_row_size * dropout_batch_stride + r % batch_row_size * size;
    apply_dropout_vec4(dropout, dropout_offset + static_cast<uint64_t>(begin + i), x);
  }
};

// The kernel body of the forward pass. Grid: (rows).
template <class Y>
struct SumNormRows {
  static constexpr int kThreads = kRowThreads;
  SumNormArguments params;
  SumNormTensors tensors;

  // Returns the bytes of shared memory for rows of `size` elements: WarpResults, then the sums x + dropout(y) of a row.
  static size_t shared_bytes(int64_t size) {
    return sizeof(WarpResults) + static_cast<size_t>(size + 6) / 4 * sizeof(Vec4<float>);
  }

  template <class Thread>
  MH_DEVICE void operator()(const Thread& thread, void* memory) const {
    const int64_t r = thread.block_x(), size = params.size, row_offset = r * size, shift = row_offset % 4;
    WarpResults& warp_results = *static_cast<WarpResults*>(memory);
    float* sums = reinterpret_cast<float*>(&warp_results + 1) + shift;  // (size): x + dropout(y) of the row
    const float inv_size = 1 / static_cast<float>(size);
    float total = 0;
    for_each_vec4(thread, shift, size, [&](int64_t i) {
      float a[4], b[4];
      load_vec4(thread, tensors.x + row_offset, i, size, a);
      load_vec4(thread, static_cast<const Y*>(tensors.y) + row_offset, i, size, b);
      params.apply_dropout(r, i, b);
      MH_FOR (k, 4) a[k] += b[k], total += a[k];
      if (tensors.sum != nullptr) store_vec4(thread, tensors.sum + row_offset, i, size, a);
      store_vec4(thread, sums, i, size, a);
    });
    if (tensors.norm == nullptr) return;
    const float mean = params.type == NormType::rms ? 0 : block_sum(thread, total, warp_results) * inv_size;
    float squares = 0;
    for_each_vec4(thread, shift, size, [&](int64_t i) {
      float a[4];
      load_vec4(thread, sums, i, size, a, mean);
      MH_FOR (k, 4) squares += (a[k] - mean) * (a[k] - mean);
    });
    const float rstd = 1 / std::sqrt(block_sum(thread, squares, warp_results) * inv_size + params.epsilon);
    for_each_vec4(thread, shift, size, [&](int64_t i) {
      float a[4], w[4], b[4] = {0, 0, 0, 0};
      load_vec4(thread, sums, i, size, a);
      load_vec4(thread, params.weight, i, size, w);
      if (params.bias != nullptr) load_vec4(thread, params.bias, i, size, b);
      MH_FOR (k, 4) a[k] = (a[k] - mean) * rstd * w[k] + b[k];
      store_vec4(thread, tensors.norm + row_offset, i, size, a);
    });
    if (thread.index() != 0) return;
    if (tensors.mean != nullptr) tensors.mean[r] = mean;
    if (tensors.rstd != nullptr) tensors.rstd[r] = rstd;
  }
};

// The kernel body of the gradients of x and y. Grid: (rows). With s' = (s - mean) * rstd and g = weight * dnorm, the
// gradient of the layer norm with respect to the sum s is rstd * (g - mean(g) - s' * mean(g s')); means are over the
// elements of a row. The gradient of the RMS norm has 0 in place of the means of s and g.
template <class Y>
struct SumNormGradient {
  static constexpr int kThreads = kRowThreads;
  SumNormArguments params;
  SumNormTensors tensors;

  template <class Thread>
  MH_DEVICE void operator()(const Thread& thread, void* memory) const {
    const int64_t r = thread.block_x(), size = params.size, row_offset = r * size, shift = row_offset % 4;
    WarpResults& warp_results = *static_cast<WarpResults*>(memory);
    const float inv_size = 1 / static_cast<float>(size);
    const bool has_norm = tensors.dnorm != nullptr, has_mean = has_norm && params.type == NormType::layer;
    const float mean = has_mean ? tensors.mean[r] : 0, rstd = has_norm ? tensors.rstd[r] : 0;
    const auto load = [&](int64_t i, float(&normalised)[4], float(&g)[4]) {
      float w[4];
      load_vec4(thread, tensors.sum + row_offset, i, size, normalised, mean);
      load_vec4(thread, tensors.dnorm + row_offset, i, size, g);
      load_vec4(thread, params.weight, i, size, w);
      MH_FOR (k, 4) normalised[k] = (normalised[k] - mean) * rstd, g[k] *= w[k];
    };
    float g_mean = 0, gs_mean = 0;  // sums, then means, of g and of g s'
    if (has_norm) {
      for_each_vec4(thread, shift, size, [&](int64_t i) {
        float s[4], g[4];
        load(i, s, g);
        MH_FOR (k, 4) g_mean += g[k], gs_mean += g[k] * s[k];
      });
      g_mean = has_mean ? block_sum(thread, g_mean, warp_results) * inv_size : 0;
      gs_mean = block_sum(thread, gs_mean, warp_results) * inv_size;
    }
    for_each_vec4(thread, shift, size, [&](int64_t i) {
      float d[4] = {0, 0, 0, 0};
      if (tensors.dsum != nullptr) load_vec4(thread, tensors.dsum + row_offset, i, size, d);
      if (has_norm) {
        float s[4], g[4];
        load(i, s, g);
        MH_FOR (k, 4) d[k] += (g[k] - g_mean - s[k] * gs_mean) * rstd;
      }
      store_vec4(thread, tensors.dx + row_offset, i, size, d);
      if (tensors.dy == nullptr) return;
      params.apply_dropout(r, i, d);
      store_vec4(thread, static_cast<Y*>(tensors.dy) + row_offset, i, size, d);
    });
  }
};

// The kernel body of dweight and dbias, summed over each chunk of tensors.chunk_rows rows. One thread computes one
// column of a chunk. Grid: (chunks, columns / kThreads rounded up).
struct SumNormWeightGradient {
  static constexpr int kThreads = 128;
  int64_t size;
  SumNormTensors tensors;

  template <class Thread>
  MH_DEVICE void operator()(const Thread& thread, void*) const {
    const int64_t column = static_cast<int64_t>(thread.block_y()) * kThreads + thread.index();
    if (column >= size) return;
    const int64_t chunk = thread.block_x(), first = chunk * tensors.chunk_rows;
    const int64_t end = first + tensors.chunk_rows < tensors.rows ? first + tensors.chunk_rows : tensors.rows;
    float dweight = 0, dbias = 0;
    for (int64_t r = first; r < end; ++r) {
      const float g = tensors.dnorm[r * size + column], mean = tensors.mean != nullptr ? tensors.mean[r] : 0;
      dweight += g * (tensors.sum[r * size + column] - mean) * tensors.rstd[r];
      dbias += g;
    }
    tensors.dweight[chunk * size + column] = dweight;
    if (tensors.dbias != nullptr) tensors.dbias[chunk * size + column] = dbias;
  }
};

// Launch the kernels of CudaApi::sum_norm and sum_norm_backward. Return null, or a description of the problem.
template <class Y, class Launcher>
const char* sum_norm(const Launcher& launcher, const SumNormParams& params, const SumNormTensors& tensors) {
  using Body = SumNormRows<Y>;
  return launcher(Grid{static_cast<int>(tensors.rows)}, threads_for_row(params.size), Body::shared_bytes(params.size),
                  Body{SumNormArguments(params), tensors});
}

template <class Y, class Launcher>
const char* sum_norm_backward(const Launcher& launcher, const SumNormParams& params, const SumNormTensors& tensors) {
  using RowGradient = SumNormGradient<Y>;
  using WeightGradient = SumNormWeightGradient;
  const char* problem = launcher(Grid{static_cast<int>(tensors.rows)}, threads_for_row(params.size),
                                 sizeof(WarpResults), RowGradient{SumNormArguments(params), tensors});
  if (problem != nullptr || tensors.dnorm == nullptr) return problem;
  return launcher(Grid{static_cast<int>(ceil_div(tensors.rows, tensors.chunk_rows)),
                       static_cast<int>(ceil_div(params.size, WeightGradient::kThreads))},
                  WeightGradient::kThreads, 0, WeightGradient{params.size, tensors});
}

}  // namespace mh::kernels
