// Softmax cross-entropy of rows of logits on a GPU. Tiling: one block computes one row. A first pass over the row
// computes the maximum and the sum of exponentials together (online softmax); if params.needs_gradient, a second pass
// replaces the logits by the gradient. A block is one warp, or 8 warps for more than 1024 logits. A thread computes
// every 32nd, or every 256th, vector of four logits, and holds the vector, a running maximum, a sum of exponentials and
// a sum of logits in registers. Shared memory: 32 bytes, one number per warp, for reductions.
#pragma once

#include <cfloat>

#include "cross_entropy_params.h"
#include "cuda/grid.h"
#include "cuda/vec4.h"

namespace mh::kernels {

// The kernel body. Grid: (rows).
template <class T>
struct CrossEntropyRows {
  static constexpr int kThreads = kRowThreads;
  CrossEntropyParams params;
  T* logits;  // (rows, vocabulary), aligned to 4 elements; replaced by the gradient if params.needs_gradient
  const int64_t* targets;    // (rows); negative: the row is not scored, its loss and gradient are zero
  CrossEntropyLoss* losses;  // (rows), written

  template <class Thread>
  MH_DEVICE void operator()(const Thread& thread, void* memory) const {
    constexpr float kLog2e = 1.4426950408889634f;
    constexpr double kNatsPerBit = 0.6931471805599453;
    const int64_t r = thread.block_x(), n = params.vocabulary_size, shift = r * n % 4, target = targets[r];
    T* row = logits + r * n;
    if (target < 0) {
      const float zeros[4] = {0, 0, 0, 0};
      if (params.needs_gradient)
        for_each_vec4(thread, shift, n, [&](int64_t i) { store_vec4(thread, row, i, n, zeros); });
      if (thread.index() == 0) losses[r] = {0, 0};
      return;
    }
    const float target_logit = to_float(thread, row[target]);

    // A finite initial maximum avoids inf - inf.
    float running_max = -FLT_MAX, sum = 0, logit_sum = 0;
    for_each_vec4(thread, shift, n, [&](int64_t i) {
      float x[4], new_max = running_max;
      load_vec4(thread, row, i, n, x, -INFINITY);
      MH_FOR (k, 4) new_max = new_max < x[k] ? x[k] : new_max;
      sum *= thread.exp2((running_max - new_max) * kLog2e);
      running_max = new_max;
      MH_FOR (k, 4) sum += thread.exp2((x[k] - running_max) * kLog2e);
      MH_FOR (k, 4) logit_sum += is_in_row(i + k, n) ? x[k] : 0.0f;
    });
    WarpResults& warp_results = *static_cast<WarpResults*>(memory);
    const float row_max = block_max(thread, running_max, warp_results);
    sum = block_sum(thread, sum * thread.exp2((running_max - row_max) * kLog2e), warp_results);
    if (params.label_smoothing != 0) logit_sum = block_sum(thread, logit_sum, warp_results);
    const float uniform_term = params.label_smoothing / static_cast<float>(n);
    if (thread.index() == 0) {
      const double lse = static_cast<double>(row_max) + kNatsPerBit * static_cast<double>(thread.log2(sum));
      const double nll = lse - static_cast<double>(target_logit), e = static_cast<double>(params.label_smoothing);
      const double mean = static_cast<double>(logit_sum) / static_cast<double>(n);
      losses[r] = {nll, e == 0 ? nll : (1 - e) * nll + e * (lse - mean)};
    }
    if (!params.needs_gradient) return;

    thread.barrier();  // until all threads have read the logit of the target, which is overwritten below
    const float inv_sum = 1 / sum;
    for_each_vec4(thread, shift, n, [&](int64_t i) {
      float x[4];
      load_vec4(thread, row, i, n, x);
      MH_FOR (k, 4) {
        x[k] = thread.exp2((x[k] - row_max) * kLog2e) * inv_sum - uniform_term;
        if (i + k == target) x[k] -= 1 - params.label_smoothing;
      }
      store_vec4(thread, row, i, n, x);
    });
  }
};

// Launches the kernel. Returns null, or a description of the problem.
template <class T, class Launcher>
const char* cross_entropy(const Launcher& launcher, const CrossEntropyParams& params, int64_t rows, void* logits,
                          const int64_t* targets, CrossEntropyLoss* losses) {
  return launcher(Grid{static_cast<int>(rows)}, threads_for_row(params.vocabulary_size), sizeof(WarpResults),
                  CrossEntropyRows<T>{params, static_cast<T*>(logits), targets, losses});
}

}  // namespace mh::kernels
