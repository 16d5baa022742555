// Optimiser updates and sums of squares over up to TensorBatch::kMaxTensors tensors in each launch. The descriptions of
// the tensors are kernel arguments, so nothing is copied to GPU memory before a launch.
//
// Tiling: a block of 256 threads computes a chunk of 8192 elements of one tensor (kUpdateChunkSize), and a thread at
// most 8 vectors of four elements of the chunk. A matrix (1024, 1024) takes 128 blocks. In an update a thread holds one
// vector each of parameters, gradients and moments in registers, at most 16 fp32 numbers, and there is no shared
// memory. In a sum of squares a thread holds one fp64 sum, and the block adds these sums in fixed order in 2 KiB of
// shared memory. The kernel arguments of Adam take 3368 bytes.
#pragma once

#include "ceil_div.h"
#include "cuda/grid.h"
#include "cuda/optimizer.h"
#include "cuda/vec4.h"

namespace mh::kernels {

// The tensors of one launch; their number is limited by the 4 KiB of kernel arguments.
template <class Item>
struct TensorBatch {
  static constexpr int kMaxTensors = 40;
  Item items[kMaxTensors];
  int first_chunk[kMaxTensors + 1] = {0};  // first chunk of each tensor, then the number of chunks of all tensors
  int count = 0;
  void add(const Item& item) {
    items[count++] = item;
    first_chunk[count] = first_chunk[count - 1] + static_cast<int>(ceil_div(item.count, kUpdateChunkSize));
  }
  // Returns the index of the tensor that chunk `chunk` belongs to.
  MH_DEVICE int tensor_of(int chunk) const {
    int i = 0;
    while (chunk >= first_chunk[i + 1]) ++i;
    return i;
  }
};

// Calls f(i) for each of this thread's vectors of four elements i … i + 3 in a chunk. chunk: index of the chunk in the
// tensor; count: number of elements of the tensor. The last vector may extend past the last element.
template <class Thread, class F>
MH_DEVICE void for_each_vec4_of_chunk(const Thread& thread, int64_t chunk, int64_t count, const F& f) {
  const int64_t first = chunk * kUpdateChunkSize,
                end = first + kUpdateChunkSize < count ? first + kUpdateChunkSize : count;
  for (int64_t i = first + 4 * thread.index(); i < end; i += 4 * thread.threads()) f(i);
}

// The update of one element: rule(parameter, gradient, first moment or momentum buffer, second moment). Without
// kHasSecondMoment the second moment is unused.
template <class Params>
struct UpdateRule;
template <>
struct UpdateRule<AdamParams> {
  static constexpr bool kHasSecondMoment = true;
  AdamParams params;
  float step_size, bias_correction2_sqrt;
  MH_DEVICE explicit UpdateRule(const AdamParams& a)
      : params(a), step_size(a.lr / a.bias_correction1), bias_correction2_sqrt(std::sqrt(a.bias_correction2)) {}
  MH_DEVICE void operator()(float& p, float g, float& m, float& v) const {
    adam_element(params, step_size, bias_correction2_sqrt, p, g, m, v);
  }
};
template <>
struct UpdateRule<MomentumParams> {
  static constexpr bool kHasSecondMoment = false;
  MomentumParams params;
  MH_DEVICE explicit UpdateRule(const MomentumParams& a) : params(a) {}
  MH_DEVICE void operator()(float& p, float g, float& buffer, float&) const { sgd_element(params, p, g, buffer); }
};
template <>
struct UpdateRule<NagParams> {
  static constexpr bool kHasSecondMoment = false;
  NagParams params;
  MH_DEVICE explicit UpdateRule(const NagParams& a) : params(a) {}
  MH_DEVICE void operator()(float& p, float g, float& buffer, float&) const { nag_element(params, p, g, buffer); }
};

// The kernel body of update(). Grid: (chunks of all tensors).
template <class Params>
struct UpdateTensors {
  static constexpr int kThreads = 256;
  TensorBatch<Update<Params>> batch;

  template <class Thread>
  MH_DEVICE void operator()(const Thread& thread, void*) const {
    const int t = batch.tensor_of(thread.block_x());
    const Update<Params>& u = batch.items[t];
    const UpdateRule<Params> rule(u.params);
    for_each_vec4_of_chunk(thread, thread.block_x() - batch.first_chunk[t], u.count, [&](int64_t i) {
      float p[4], g[4], first_moment[4], second_moment[4] = {0, 0, 0, 0};
      load_vec4(thread, u.p, i, u.count, p);
      load_vec4(thread, u.g, i, u.count, g);
      load_vec4(thread, u.first_moment, i, u.count, first_moment);
      if (UpdateRule<Params>::kHasSecondMoment) load_vec4(thread, u.second_moment, i, u.count, second_moment);
      MH_FOR (k, 4) rule(p[k], g[k], first_moment[k], second_moment[k]);
      store_vec4(thread, u.p, i, u.count, p);
      store_vec4(thread, u.first_moment, i, u.count, first_moment);
      if (UpdateRule<Params>::kHasSecondMoment) store_vec4(thread, u.second_moment, i, u.count, second_moment);
      if (u.bf16_copy != nullptr) store_vec4(thread, reinterpret_cast<Bf16*>(u.bf16_copy), i, u.count, p);
    });
  }
};

// The kernel body of sum_of_squares(): computes the sum of squares of each chunk, in fp64. Grid: (chunks of all
// tensors).
struct SumOfSquares {
  static constexpr int kThreads = 256;
  TensorBatch<FloatSpan> batch;
  double* sums;

  template <class Thread>
  MH_DEVICE void operator()(const Thread& thread, void* memory) const {
    const int t = batch.tensor_of(thread.block_x());
    const FloatSpan& tensor = batch.items[t];
    double sum = 0;
    for_each_vec4_of_chunk(thread, thread.block_x() - batch.first_chunk[t], tensor.count, [&](int64_t i) {
      float x[4];
      load_vec4(thread, tensor.x, i, tensor.count, x);
      MH_FOR (k, 4) sum += static_cast<double>(x[k]) * static_cast<double>(x[k]);
    });
    auto* thread_sums = static_cast<double*>(memory);
    thread_sums[thread.index()] = sum;
    for (int half = kThreads / 2; half > 0; half /= 2) {
      thread.barrier();
      if (thread.index() < half) thread_sums[thread.index()] += thread_sums[thread.index() + half];
    }
    if (thread.index() == 0) sums[thread.block_x()] = thread_sums[0];
  }
};

// Calls launch(batch) for batches of at most TensorBatch::kMaxTensors tensors, until launch() returns a problem, and
// returns this problem or null. Skips empty tensors.
template <class Item, class Launch>
const char* launch_batches(const Item* items, int64_t count, const Launch& launch) {
  TensorBatch<Item> batch;
  for (int64_t i = 0; i < count; ++i) {
    if (items[i].count > 0) batch.add(items[i]);
    if (batch.count < TensorBatch<Item>::kMaxTensors && (i + 1 < count || batch.count == 0)) continue;
    if (const char* problem = launch(batch)) return problem;
    batch = TensorBatch<Item>();
  }
  return nullptr;
}

// Launches the kernels of CudaApi::adam, sgd and nag. Returns null, or a description of the problem.
template <class Launcher, class Params>
const char* update(const Launcher& launcher, const Update<Params>* updates, int64_t count) {
  return launch_batches(updates, count, [&](const TensorBatch<Update<Params>>& batch) {
    return launcher(Grid{batch.first_chunk[batch.count]}, UpdateTensors<Params>::kThreads, 0,
                    UpdateTensors<Params>{batch});
  });
}

// Launches the kernels of CudaApi::sum_of_squares. sums: one element for each chunk of each tensor, in the order of the
// tensors. Returns null, or a description of the problem.
template <class Launcher>
const char* sum_of_squares(const Launcher& launcher, const FloatSpan* spans, int64_t count, double* sums) {
  return launch_batches(spans, count, [&](const TensorBatch<FloatSpan>& batch) {
    const int blocks = batch.first_chunk[batch.count];
    const char* problem = launcher(Grid{blocks}, SumOfSquares::kThreads, SumOfSquares::kThreads * sizeof(double),
                                   SumOfSquares{batch, sums});
    sums += blocks;
    return problem;
  });
}

}  // namespace mh::kernels
