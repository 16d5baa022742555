// The host code of AttentionKernels for one type and head size: chooses the kernels of each call and their grids, and
// launches the kernels with a launcher. The launcher is a template parameter: Launcher of cuda/attention.cu.in on a
// GPU, or of tests/emulator/host_launcher.h on a CPU. A launcher provides
//
//   const char* launcher(Grid{x, y, z}, threads, bytes of shared memory, body)  // null or a description of the problem
//   int launcher.max_shared_memory()                                            // bytes per block
//   int launcher.num_multiprocessors()
//
// A body is a function object that holds the arguments of a kernel; body(thread, shared memory) is the code of one
// thread.
#pragma once

#include <algorithm>

#include "ceil_div.h"
#include "cuda/attention_backward.h"
#include "cuda/distance_gradient.h"
#include "cuda/grid.h"
#include "cuda/head_mixing/backward.h"
#include "cuda/head_mixing/forward.h"
#include "cuda/head_mixing/key_gradient.h"
#include "cuda/head_mixing/row_mix_backward.h"

namespace mh::kernels {

// Returns the number of tiles of `size` rows that cover `length` rows.
inline int num_tiles_of(int64_t length, int size) { return static_cast<int>(ceil_div(length, size)); }

// Returns the fastest number of splits of the keys (split-KV) for a grid of `num_blocks` blocks that each loop over
// `num_tiles` tiles of keys, on a GPU that runs num_concurrent_blocks blocks at a time. Cost model, in units of the
// time of one tile: a block costs the number of its tiles plus 1, and combining the splits costs 2.
inline int best_num_splits(int64_t num_blocks, int num_tiles, int num_concurrent_blocks) {
  int fastest_num_splits = 1;
  int64_t best_time = INT64_MAX;
  for (int num_splits = 1; num_splits <= num_tiles && num_splits <= num_concurrent_blocks; ++num_splits) {
    const int64_t num_waves = ceil_div(num_blocks * num_splits, num_concurrent_blocks),
                  block_time = num_tiles_of(num_tiles, num_splits) + 1;
    const int64_t time = num_waves * block_time + (num_splits > 1 ? 2 : 0);
    if (time < best_time) fastest_num_splits = num_splits, best_time = time;
  }
  return fastest_num_splits;
}

// The bodies of the kernels without head mixing. kThreads: number of threads of a block. Traits: tile sizes.
// kLogitTerms: whether the kernel computes logit terms (cuda/probability.h).
template <class T, int kSize, bool kComputeOut, bool kRelative, bool kLogitTerms>
struct Forward {
  using Traits = AttentionTiles<T, kSize, kRelative>;
  static constexpr int kThreads = Traits::kThreads;
  AttentionParams params;
  KernelTensors<T> tensors;
  template <class Thread>
  MH_DEVICE void operator()(const Thread& thread, void* memory) const {
    attention_forward<T, kSize, kComputeOut, kRelative, kLogitTerms>(thread, params, tensors,
                                                                     *static_cast<typename Traits::Shared*>(memory));
  }
};

template <class T>
struct CombineSplits {
  static constexpr int kThreads = 128;
  AttentionParams params;
  KernelTensors<T> tensors;
  template <class Thread>
  MH_DEVICE void operator()(const Thread& thread, void*) const {
    combine_splits<T>(thread, params, tensors);
  }
};

template <class T>
struct AttentionDelta {
  static constexpr int kThreads = 128;
  AttentionParams params;
  KernelTensors<T> tensors;
  template <class Thread>
  MH_DEVICE void operator()(const Thread& thread, void*) const {
    attention_delta<T>(thread, params, tensors);
  }
};

template <class T, int kSize, bool kRelative, bool kLogitTerms>
struct QueryGradient {
  using Traits = QueryGradientTiles<T, kSize, kRelative>;
  static constexpr int kThreads = Traits::kThreads;
  AttentionParams params;
  KernelTensors<T> tensors;
  template <class Thread>
  MH_DEVICE void operator()(const Thread& thread, void* memory) const {
    attention_query_gradient<T, kSize, kRelative, kLogitTerms>(thread, params, tensors,
                                                               *static_cast<typename Traits::Shared*>(memory));
  }
};

template <class T, int kSize, bool kComputeDk, bool kComputeDv, bool kRelative, bool kLogitTerms>
struct KeyGradient {
  using Traits = KeyGradientTiles<T, kSize, kRelative>;
  static constexpr int kThreads = Traits::kThreads;
  AttentionParams params;
  KernelTensors<T> tensors;
  template <class Thread>
  MH_DEVICE void operator()(const Thread& thread, void* memory) const {
    attention_key_gradient<T, kSize, kComputeDk, kComputeDv, kRelative, kLogitTerms>(
        thread, params, tensors, *static_cast<typename Traits::Shared*>(memory));
  }
};

template <class T, int kSize>
struct DistanceGradient {
  using Traits = DistanceGradientTiles<T, kSize>;
  static constexpr int kThreads = Traits::kThreads;
  AttentionParams params;
  KernelTensors<T> tensors;
  template <class Thread>
  MH_DEVICE void operator()(const Thread& thread, void* memory) const {
    attention_distance_gradient<T, kSize, false>(thread, params, tensors,
                                                 *static_cast<typename Traits::Shared*>(memory));
  }
};

template <class T, int kSize>
struct PositionBiasGradient {
  using Traits = DistanceGradientTiles<T, kSize, true>;
  static constexpr int kThreads = Traits::kThreads;
  AttentionParams params;
  KernelTensors<T> tensors;
  template <class Thread>
  MH_DEVICE void operator()(const Thread& thread, void* memory) const {
    attention_distance_gradient<T, kSize, true>(thread, params, tensors,
                                                *static_cast<typename Traits::Shared*>(memory));
  }
};

constexpr int kHeadMixingThreads = 32 * kHeadMixingWarps;  // maximum number of threads of a block
// Keys of a tile in the estimate of the best number of splits with head mixing. The tiles of these kernels have fewer
// keys, but splits of fewer keys are slower.
constexpr int kSplitTileKeys = 64;

// Returns the tensors as kernels with head mixing expect them: with relative positions q is replaced by q_u, which is
// q + u.
inline AttentionTensors select_biased_queries(const AttentionTensors& tensors) {
  AttentionTensors result = tensors;
  if (tensors.q_u.data != nullptr) result.q = tensors.q_u;
  return result;
}

// The arguments of a head-mixing kernel. Plan: HeadMixingPlan or RowMixPlan.
template <class T, class Plan>
struct HeadMixingArguments {
  AttentionParams params;
  Plan plan;
  BlockOrder order;
  KernelTensors<T> tensors;
};

// The bodies of the kernels of head_mixing/forward.h, backward.h and key_gradient.h, which serve any type and head
// counts.
template <class T, int kSize, bool kRelative>
struct HeadMixingForward : HeadMixingArguments<T, HeadMixingPlan> {
  using Traits = HeadMixingForwardTiles<T, kSize, kRelative>;
  static constexpr int kThreads = kHeadMixingThreads;
  HeadMixingSplits splits;
  template <class Thread>
  MH_DEVICE void operator()(const Thread& thread, void* memory) const {
    head_mixing_forward<T, kSize, kRelative>(thread, this->params, this->plan, this->order, this->tensors, splits,
                                             memory);
  }
};

template <class T>
struct CombineHeadMixingSplits {
  static constexpr int kThreads = 128;
  AttentionParams params;
  KernelTensors<T> tensors;
  HeadMixingSplits splits;
  template <class Thread>
  MH_DEVICE void operator()(const Thread& thread, void*) const {
    combine_head_mixing_splits<T>(thread, params, tensors, splits);
  }
};

template <class T, int kSize, bool kRelative>
struct HeadMixingMatrixGradient : HeadMixingArguments<T, HeadMixingPlan> {
  using Traits = HeadMixingMatrixGradientTiles<T, kSize, kRelative>;
  static constexpr int kThreads = kHeadMixingThreads;
  template <class Thread>
  MH_DEVICE void operator()(const Thread& thread, void* memory) const {
    head_mixing_matrix_gradient<T, kSize, kRelative>(thread, this->params, this->plan, this->order, this->tensors,
                                                     memory);
  }
};

struct HeadMixingQueryStats {
  static constexpr int kThreads = 128;
  AttentionParams params;
  AttentionTensors tensors;
  WeightRounding rounding;
  template <class Thread>
  MH_DEVICE void operator()(const Thread& thread, void*) const {
    head_mixing_query_stats(thread, params, tensors, rounding);
  }
};

template <class T, int kSize, bool kRelative>
struct HeadMixingQueryGradient : HeadMixingArguments<T, HeadMixingPlan> {
  using Traits = HeadMixingQueryGradientTiles<T, kSize, kRelative>;
  static constexpr int kThreads = kHeadMixingThreads;
  template <class Thread>
  MH_DEVICE void operator()(const Thread& thread, void* memory) const {
    head_mixing_query_gradient<T, kSize, kRelative>(thread, this->params, this->plan, this->order, this->tensors,
                                                    memory);
  }
};

template <class T, int kSize, bool kComputeDk, bool kComputeDv, ResidentRows kResident>
struct HeadMixingKeyGradient : HeadMixingArguments<T, HeadMixingPlan> {
  using Traits = HeadMixingKeyGradientTiles<T, kSize, kComputeDk, kComputeDv, kResident>;
  static constexpr int kThreads = kHeadMixingThreads;
  template <class Thread>
  MH_DEVICE void operator()(const Thread& thread, void* memory) const {
    head_mixing_key_gradient<T, kSize, kComputeDk, kComputeDv, kResident>(thread, this->params, this->plan, this->order,
                                                                          this->tensors, memory);
  }
};

// The bodies of the kernels of head_mixing/row_mix_forward.h and row_mix_backward.h, which serve 16-bit types and few
// heads. Traits: an instance of RowMixTraits.
template <class Traits, class T>
struct RowMixForward : HeadMixingArguments<T, RowMixPlan> {
  using Sizes = RowMixForwardTiles<Traits>;
  static constexpr int kThreads = 32 * Traits::kWarps;
  HeadMixingSplits splits;
  template <class Thread>
  MH_DEVICE void operator()(const Thread& thread, void* memory) const {
    row_mix_forward<Traits>(thread, this->params, this->plan, this->order, this->tensors, splits, memory);
  }
};

template <class Traits, class T>
struct RowMixMatrixGradient : HeadMixingArguments<T, RowMixPlan> {
  using Sizes = RowMixMatrixGradientTiles<Traits>;
  static constexpr int kThreads = 32 * Traits::kWarps;
  template <class Thread>
  MH_DEVICE void operator()(const Thread& thread, void* memory) const {
    row_mix_matrix_gradient<Traits>(thread, this->params, this->plan, this->order, this->tensors, memory);
  }
};

template <class Traits, class T>
struct RowMixQueryGradient : HeadMixingArguments<T, RowMixPlan> {
  using Sizes = RowMixQueryGradientTiles<Traits>;
  static constexpr int kThreads = 32 * Traits::kWarps;
  template <class Thread>
  MH_DEVICE void operator()(const Thread& thread, void* memory) const {
    row_mix_query_gradient<Traits>(thread, this->params, this->plan, this->order, this->tensors, memory);
  }
};

template <class Traits, class T>
struct RowMixKeyGradient : HeadMixingArguments<T, RowMixPlan> {
  using Sizes = RowMixKeyGradientTiles<Traits>;
  static constexpr int kThreads = 32 * Traits::kWarps;
  template <class Thread>
  MH_DEVICE void operator()(const Thread& thread, void* memory) const {
    row_mix_key_gradient<Traits>(thread, this->params, this->plan, this->order, this->tensors, memory);
  }
};

// Bytes of keys and values that are assumed to stay in the L2 cache beside other data (an A100 has 40 MB of L2 cache,
// an H100 50 MB).
constexpr int64_t kL2Bytes = int64_t{20} << 20;

// Returns the order of blocks over tiles and batch rows. Batch rows are divided into groups of similar size, which are
// computed one after another. A group has few enough rows that their keys and values fit in the L2 cache, but at least
// enough rows for 4 blocks per multiprocessor, so that short blocks balance long blocks.
template <class T, class Launcher>
BlockOrder block_order(const Launcher& launcher, const AttentionParams& params, int64_t batch, int tiles) {
  const int64_t row_bytes =
      params.keys * (params.heads * params.key_size + params.value_heads * params.value_size) * int64_t{sizeof(T)};
  const int64_t rows_in_l2 = kL2Bytes / std::max<int64_t>(1, row_bytes),
                min_rows = ceil_div(4 * int64_t{launcher.num_multiprocessors()}, std::max(1, tiles));
  const int64_t num_concurrent_rows = std::max<int64_t>({1, rows_in_l2, min_rows}),
                groups = ceil_div(batch, num_concurrent_rows);
  return {tiles, static_cast<int>(batch), static_cast<int>(ceil_div(batch, std::max<int64_t>(1, groups)))};
}

// The functions of AttentionKernels for one type and head size. The documentation of a function is at the member of
// AttentionKernels with the same name.
template <class T, int kSize>
struct AttentionLaunches {
  static int num_query_tiles(const AttentionParams& params) {
    return num_tiles_of(params.queries, params.has_relative_positions()
                                            ? 16 * kRelativeWarps<T, kSize>
                                            : QueryGradient<T, kSize, false, false>::Traits::kQueries);
  }

  // Returns why attention without mixing does not support relative positions; null if it does.
  template <class Launcher>
  static const char* relative_constraint(const Launcher& launcher) {
    constexpr size_t bytes[] = {sizeof(typename Forward<T, kSize, true, true, false>::Traits::Shared),
                                sizeof(typename QueryGradient<T, kSize, true, false>::Traits::Shared),
                                sizeof(typename KeyGradient<T, kSize, true, true, true, false>::Traits::Shared),
                                sizeof(typename DistanceGradient<T, kSize>::Traits::Shared)};
    for (const size_t block_bytes : bytes) {
      if (block_bytes > static_cast<size_t>(launcher.max_shared_memory()))
        return "relative positions with a head size whose tiles exceed the shared memory of a block";
    }
    return nullptr;
  }

  // Returns why attention without mixing does not support logit terms; null if it does. Kernels with logit terms are
  // compiled for one head size only, since they are four more kernels for each head size.
  template <class Launcher>
  static const char* logit_term_constraint(const Launcher& launcher, bool has_relative_positions) {
    if constexpr (!kHasLogitTerms) {
      return "logit terms (soft cap, sinks, position bias, two-sided window) in kernels of another head size than 64";
    } else {
      if (has_relative_positions)
        return "logit terms (soft cap, sinks, position bias, two-sided window) with relative positions";
      return sizeof(typename PositionBiasGradient<T, kSize>::Traits::Shared) <=
                     static_cast<size_t>(launcher.max_shared_memory())
                 ? nullptr
                 : "logit terms whose tiles exceed the shared memory of a block";
    }
  }

  // Launches attention_forward(), with partial results if there are several splits.
  template <bool kComputeOut, class Launcher>
  static const char* forward_splits(const Launcher& launcher, const AttentionParams& params,
                                    const AttentionTensors& tensors) {
    if (has_logit_terms(params)) {
      if (const char* problem = logit_term_constraint(launcher, params.has_relative_positions())) return problem;
      if constexpr (kHasLogitTerms && kComputeOut) return launch_forward<true, false, true>(launcher, params, tensors);
      return kLogitTermsWithHeadMixing;  // only head mixing computes the log-sum-exp without outputs
    }
    if (!params.has_relative_positions()) return launch_forward<kComputeOut, false, false>(launcher, params, tensors);
    if (const char* problem = relative_constraint(launcher)) return problem;
    return launch_forward<kComputeOut, true, false>(launcher, params, tensors);
  }
  template <class Launcher>
  static int num_splits(const Launcher& launcher, const AttentionParams& params, int64_t batch) {
    const auto best_for_tiles = [&](auto tiles) {
      constexpr int queries = decltype(tiles)::kQueries;
      const int64_t window_size = params.causal ? params.window : 2 * params.window - 1,
                    num_visible = params.window > 0 ? std::min(params.keys, window_size + queries - 1) : params.keys;
      return best_num_splits(num_tiles_of(params.queries, queries) * batch * params.value_heads,
                             num_tiles_of(num_visible, decltype(tiles)::kKeys), launcher.num_multiprocessors());
    };
    return params.has_relative_positions() ? best_for_tiles(AttentionTiles<T, kSize, true>{})
                                           : best_for_tiles(AttentionTiles<T, kSize, false>{});
  }
  template <class Launcher>
  static const char* forward(const Launcher& launcher, const AttentionParams& params, const AttentionTensors& tensors) {
    const char* problem = forward_splits<true>(launcher, params, tensors);
    return problem != nullptr ? problem : launch_combine(launcher, params, tensors);
  }

  template <class Launcher>
  static const char* backward(const Launcher& launcher, const AttentionParams& params,
                              const AttentionTensors& tensors) {
    const char* constraint = has_logit_terms(params) ? logit_term_constraint(launcher, params.has_relative_positions())
                             : params.has_relative_positions() ? relative_constraint(launcher)
                                                               : nullptr;
    if (constraint != nullptr) return constraint;
    const AttentionDelta<T> delta{params, KernelTensors<T>(tensors)};
    if (const char* problem =
            launcher(Grid{num_tiles_of(params.queries, 4), num_batch_heads(params, tensors)}, delta.kThreads, 0, delta))
      return problem;
    if constexpr (kHasLogitTerms) {
      if (has_logit_terms(params)) return launch_gradients<false, true>(launcher, params, tensors);
    }
    return params.has_relative_positions() ? launch_gradients<true, false>(launcher, params, tensors)
                                           : launch_gradients<false, false>(launcher, params, tensors);
  }

  // Returns why `heads` query heads cannot be mixed to `value_heads` value heads; null if they can.
  template <class Launcher>
  static const char* head_mixing_constraint(const Launcher& launcher, int heads, int value_heads,
                                            bool has_relative_positions) {
    AttentionParams params;
    params.heads = heads, params.value_heads = value_heads;
    const int max_shared_bytes = launcher.max_shared_memory();
    return has_relative_positions ? head_mixing_constraint_of<true>(params, max_shared_bytes)
                                  : head_mixing_constraint_of<false>(params, max_shared_bytes);
  }
  // Returns the number of splits of the keys, a power of two; 1 with relative positions.
  template <class Launcher>
  static int head_mixing_num_splits(const Launcher& launcher, const AttentionParams& params, int64_t batch) {
    const int max_shared_bytes = launcher.max_shared_memory();
    const HeadMixingPlan plan = HeadMixingForwardTiles<T, kSize, false>::plan(params, max_shared_bytes);
    if (params.has_relative_positions() || plan.num_stages == 0) return 1;
    int queries = 16 * plan.num_row_tiles, blocks = plan.num_head_blocks;
    dispatch_row_mix(params, max_shared_bytes,
                     [&](auto row_mix) { queries = decltype(row_mix)::kQueries, blocks = 1; });
    const int64_t num_visible = params.window > 0 ? std::min(params.keys, params.window + queries - 1) : params.keys;
    const int best_splits = best_num_splits(num_tiles_of(params.queries, queries) * batch * blocks,
                                            num_tiles_of(num_visible, kSplitTileKeys), launcher.num_multiprocessors());
    int splits = 1;
    while (2 * splits <= best_splits) splits *= 2;
    return splits;
  }
  // Returns the number of matrix gradients of a batch row: one for each query, or, if the queries share a matrix and
  // the row-mix kernels apply, one for each query tile.
  template <class Launcher>
  static int head_mixing_num_matrix_gradients(const Launcher& launcher, const AttentionParams& params) {
    auto num_gradients = static_cast<int>(params.queries);
    if (params.matrix_query_stride != 0) return num_gradients;
    dispatch_row_mix(params, launcher.max_shared_memory(), [&](auto row_mix) {
      num_gradients = num_tiles_of(params.queries, RowMixMatrixGradientTiles<decltype(row_mix)>::kQueries);
    });
    return num_gradients;
  }
  template <class Launcher>
  static const char* head_mixing_forward(const Launcher& launcher, const AttentionParams& params,
                                         const AttentionTensors& tensors) {
    if (has_logit_terms(params)) return kLogitTermsWithHeadMixing;
    return params.has_relative_positions() ? head_mixing_forward_of<true>(launcher, params, tensors)
                                           : head_mixing_forward_of<false>(launcher, params, tensors);
  }
  template <class Launcher>
  static const char* head_mixing_backward(const Launcher& launcher, const AttentionParams& params,
                                          const AttentionTensors& tensors) {
    if (has_logit_terms(params)) return kLogitTermsWithHeadMixing;
    return params.has_relative_positions() ? head_mixing_backward_of<true>(launcher, params, tensors)
                                           : head_mixing_backward_of<false>(launcher, params, tensors);
  }

 private:
  static constexpr bool kSeparateHeadMixingPasses = kSeparateKeyValuePasses<T, kSize>;
  static constexpr bool kHasLogitTerms = kSize == 64;  // whether kernels with logit terms are compiled
  static constexpr const char* kLogitTermsWithHeadMixing =
      "logit terms (soft cap, sinks, position bias, two-sided window) with head mixing";
  static constexpr const char* kTooLarge = "head counts or head sizes whose tiles exceed the shared memory of a block";

  // Returns whether a call needs kernels with logit terms.
  static bool has_logit_terms(const AttentionParams& params) {
    return params.soft_cap > 0 || params.has_position_bias() || params.sinks != nullptr ||
           (params.window > 0 && !params.causal);
  }

  // Returns the number of blocks in y: batch rows times value heads, which without head mixing equal the heads.
  static int num_batch_heads(const AttentionParams& params, const AttentionTensors& tensors) {
    return static_cast<int>(tensors.batch * params.value_heads);
  }

  template <bool kComputeOut, bool kRelative, bool kLogitTerms, class Launcher>
  static const char* launch_forward(const Launcher& launcher, const AttentionParams& params,
                                    const AttentionTensors& tensors) {
    using Body = Forward<T, kSize, kComputeOut, kRelative, kLogitTerms>;
    if (!(params.scale > 0))
      return "expected a positive scale of the logits; found a scale <= 0 or NaN; "
             "for a negative scale, negate the scale and the queries";
    return launcher(Grid{num_tiles_of(params.queries, Body::Traits::kQueries), num_batch_heads(params, tensors),
                         tensors.num_splits},
                    Body::kThreads, sizeof(typename Body::Traits::Shared), Body{params, KernelTensors<T>(tensors)});
  }

  // Launches the kernel that combines the splits of a forward pass, if there is more than one split.
  template <class Launcher>
  static const char* launch_combine(const Launcher& launcher, const AttentionParams& params,
                                    const AttentionTensors& tensors) {
    if (tensors.num_splits == 1) return nullptr;
    const CombineSplits<T> combine{params, KernelTensors<T>(tensors)};
    return launcher(Grid{num_tiles_of(params.queries, 4), num_batch_heads(params, tensors)}, combine.kThreads, 0,
                    combine);
  }

  // Launches the kernels of the backward pass that follow attention_delta().
  template <bool kRelative, bool kLogitTerms, class Launcher>
  static const char* launch_gradients(const Launcher& launcher, const AttentionParams& params,
                                      const AttentionTensors& tensors) {
    if (const char* problem = query_gradient<kRelative, kLogitTerms>(launcher, params, tensors)) return problem;
    if constexpr (kRelative) {
      if (const char* problem =
              distance_gradient<DistanceGradient<T, kSize>>(launcher, params, tensors, params.relative.num_distances))
        return problem;
    }
    if constexpr (kLogitTerms) {
      if (tensors.dposition_bias != nullptr) {
        if (const char* problem = distance_gradient<PositionBiasGradient<T, kSize>>(launcher, params, tensors,
                                                                                    params.position_bias.num_distances))
          return problem;
      }
    }
    if constexpr (KeyGradientTiles<T, kSize>::kSeparatePasses) {
      const char* problem = key_gradient<true, false, kRelative, kLogitTerms>(launcher, params, tensors);
      return problem != nullptr ? problem
                                : key_gradient<false, true, kRelative, kLogitTerms>(launcher, params, tensors);
    } else {
      return key_gradient<true, true, kRelative, kLogitTerms>(launcher, params, tensors);
    }
  }

  template <bool kRelative, bool kLogitTerms, class Launcher>
  static const char* query_gradient(const Launcher& launcher, const AttentionParams& params,
                                    const AttentionTensors& tensors) {
    using Body = QueryGradient<T, kSize, kRelative, kLogitTerms>;
    return launcher(Grid{num_query_tiles(params), num_batch_heads(params, tensors), kSize / Body::Traits::kColumns},
                    Body::kThreads, sizeof(typename Body::Traits::Shared), Body{params, KernelTensors<T>(tensors)});
  }

  // Launches the gradient with respect to distances. Body: DistanceGradient or PositionBiasGradient.
  template <class Body, class Launcher>
  static const char* distance_gradient(const Launcher& launcher, const AttentionParams& params,
                                       const AttentionTensors& tensors, int num_distances) {
    return launcher(Grid{num_tiles_of(num_distances, Body::Traits::kDistances), num_batch_heads(params, tensors)},
                    Body::kThreads, sizeof(typename Body::Traits::Shared), Body{params, KernelTensors<T>(tensors)});
  }

  template <bool kComputeDk, bool kComputeDv, bool kRelative, bool kLogitTerms, class Launcher>
  static const char* key_gradient(const Launcher& launcher, const AttentionParams& params,
                                  const AttentionTensors& tensors) {
    using Body = KeyGradient<T, kSize, kComputeDk, kComputeDv, kRelative, kLogitTerms>;
    return launcher(Grid{num_key_tiles<kRelative>(params, Body::Traits::kKeys), num_batch_heads(params, tensors)},
                    Body::kThreads, sizeof(typename Body::Traits::Shared), Body{params, KernelTensors<T>(tensors)});
  }

  // Returns the number of tiles of `size` keys; with relative positions an upper bound, since each key range begins a
  // new tile.
  template <bool kRelative>
  static int num_key_tiles(const AttentionParams& params, int size) {
    const int extra_tiles = kRelative && params.relative.num_key_ranges > 0 ? params.relative.num_key_ranges - 1 : 0;
    return num_tiles_of(params.keys, size) + extra_tiles;
  }

  // Returns kTooLarge if a kernel with head mixing needs more than `max_shared_bytes` bytes of shared memory per block;
  // otherwise null.
  template <bool kRelative>
  static const char* head_mixing_constraint_of(const AttentionParams& params, int max_shared_bytes) {
    constexpr ResidentRows kResident = kRelative ? ResidentRows::keys_of_range : ResidentRows::keys;
    bool is_supported =
        sizeof(typename Forward<T, kSize, false, kRelative, false>::Traits::Shared) <=
            static_cast<size_t>(max_shared_bytes) &&
        HeadMixingForwardTiles<T, kSize, kRelative>::plan(params, max_shared_bytes).num_stages > 0 &&
        HeadMixingMatrixGradientTiles<T, kSize, kRelative>::plan(params, max_shared_bytes).num_stages > 0 &&
        HeadMixingQueryGradientTiles<T, kSize, kRelative>::plan(params, max_shared_bytes).num_stages > 0 &&
        HeadMixingKeyGradientTiles<T, kSize, !kSeparateHeadMixingPasses, true, kResident>::plan(params,
                                                                                                max_shared_bytes)
                .num_stages > 0 &&
        HeadMixingKeyGradientTiles<T, kSize, true, !kSeparateHeadMixingPasses, kResident>::plan(params,
                                                                                                max_shared_bytes)
                .num_stages > 0;
    if constexpr (kRelative)
      is_supported = is_supported && HeadMixingKeyGradientTiles<T, kSize, true, false, ResidentRows::distances>::plan(
                                         params, max_shared_bytes)
                                             .num_stages > 0;
    return is_supported ? nullptr : kTooLarge;
  }

  template <bool kRelative, class Launcher>
  static const char* head_mixing_forward_of(const Launcher& launcher, const AttentionParams& params,
                                            const AttentionTensors& tensors) {
    const int max_shared_bytes = launcher.max_shared_memory();
    AttentionParams lse_params = params;
    lse_params.value_heads = params.heads, lse_params.head_scales = nullptr, lse_params.value_size = 0;
    if (const char* problem = launch_forward<false, kRelative, false>(launcher, lse_params, tensors)) return problem;
    if (const char* problem = launch_combine(launcher, lse_params, tensors)) return problem;
    const HeadMixingSplits splits(tensors);
    const char* problem = nullptr;
    const auto forward_row_mix = [&](auto row_mix) {
      using Traits = decltype(row_mix);
      problem = launch_row_mix<RowMixForward<Traits, T>>(
          launcher, params, tensors, num_tiles_of(params.queries, Traits::kQueries), tensors.num_splits, splits);
    };
    if (!dispatch_row_mix(params, max_shared_bytes, forward_row_mix))
      problem = launch_head_mixing<HeadMixingForward<T, kSize, kRelative>>(
          launcher, params, select_biased_queries(tensors),
          [&](int rows) { return num_tiles_of(params.queries, rows); }, tensors.num_splits, splits);
    if (problem != nullptr) return problem;
    if (tensors.num_splits == 1) return nullptr;
    const CombineHeadMixingSplits<T> combine{params, KernelTensors<T>(tensors), splits};
    return launcher(Grid{num_tiles_of(params.queries, 4), num_batch_heads(params, tensors)}, combine.kThreads, 0,
                    combine);
  }

  template <bool kRelative, class Launcher>
  static const char* head_mixing_backward_of(const Launcher& launcher, const AttentionParams& params,
                                             const AttentionTensors& tensors) {
    const AttentionTensors kernel_tensors = select_biased_queries(tensors);
    const int max_shared_bytes = launcher.max_shared_memory();
    const char* row_mix_problem = nullptr;
    if (dispatch_row_mix(params, max_shared_bytes, [&](auto row_mix) {
          row_mix_problem = row_mix_backward<decltype(row_mix)>(launcher, params, kernel_tensors);
        }))
      return row_mix_problem;
    const auto num_query_tiles_of = [&](int rows) { return num_tiles_of(params.queries, rows); };
    using MatrixGradientBody = HeadMixingMatrixGradient<T, kSize, kRelative>;
    if (const char* problem = launch_head_mixing<MatrixGradientBody>(
            launcher, params, kernel_tensors, num_query_tiles_of, MatrixGradientBody::Traits::num_chunks(params)))
      return problem;
    const HeadMixingQueryStats query_stats{params, kernel_tensors, WeightRounding::for_params<T>(params)};
    if (const char* problem =
            launcher(Grid{num_tiles_of(kernel_tensors.batch * params.heads * params.queries + kStatsPadding,
                                       query_stats.kThreads)},
                     query_stats.kThreads, 0, query_stats))
      return problem;
    using QueryGradientBody = HeadMixingQueryGradient<T, kSize, kRelative>;
    if (const char* problem = launch_head_mixing<QueryGradientBody>(
            launcher, params, kernel_tensors, num_query_tiles_of, QueryGradientBody::Traits::kColumnBlocks))
      return problem;
    if constexpr (kRelative) {
      using DistanceGradientBody = HeadMixingKeyGradient<T, kSize, true, false, ResidentRows::distances>;
      const auto num_distance_tiles_of = [&](int rows) { return num_tiles_of(params.relative.num_distances, rows); };
      if (const char* problem = launch_head_mixing<DistanceGradientBody>(
              launcher, params, kernel_tensors, num_distance_tiles_of, DistanceGradientBody::Traits::kColumnBlocks))
        return problem;
    }
    if constexpr (kSeparateHeadMixingPasses) {
      const char* problem = head_mixing_key_gradient<true, false, kRelative>(launcher, params, kernel_tensors);
      return problem != nullptr ? problem
                                : head_mixing_key_gradient<false, true, kRelative>(launcher, params, kernel_tensors);
    } else {
      return head_mixing_key_gradient<true, true, kRelative>(launcher, params, kernel_tensors);
    }
  }

  template <bool kComputeDk, bool kComputeDv, bool kRelative, class Launcher>
  static const char* head_mixing_key_gradient(const Launcher& launcher, const AttentionParams& params,
                                              const AttentionTensors& tensors) {
    using Body = HeadMixingKeyGradient<T, kSize, kComputeDk, kComputeDv,
                                       kRelative ? ResidentRows::keys_of_range : ResidentRows::keys>;
    return launch_head_mixing<Body>(
        launcher, params, tensors, [&](int rows) { return num_key_tiles<kRelative>(params, rows); }, 1);
  }

  // Launches a head-mixing kernel with the plan of its tile sizes. num_tiles_of_rows(n) returns the number of tiles of
  // a batch row, for tiles of n resident rows. num_z_blocks: number of blocks in z for each head block. arguments: the
  // arguments of the body after HeadMixingArguments.
  template <class Body, class Launcher, class NumTilesOf, class... Arguments>
  static const char* launch_head_mixing(const Launcher& launcher, const AttentionParams& params,
                                        const AttentionTensors& tensors, const NumTilesOf& num_tiles_of_rows,
                                        int num_z_blocks, const Arguments&... arguments) {
    const HeadMixingPlan plan = Body::Traits::plan(params, launcher.max_shared_memory());
    if (plan.num_stages == 0) return kTooLarge;
    const BlockOrder order =
        block_order<T>(launcher, params, tensors.batch, num_tiles_of_rows(16 * plan.num_row_tiles));
    return launcher(Grid{order.num_blocks(), 1, plan.num_head_blocks * num_z_blocks}, plan.threads(), plan.shared_bytes,
                    Body{{params, plan, order, KernelTensors<T>(tensors)}, arguments...});
  }
  // Launches a row-mix kernel with the plan of its tile sizes. tiles: number of tiles of resident rows in each batch
  // row. num_z_blocks: number of blocks in z. arguments: as in launch_head_mixing().
  template <class Body, class Launcher, class... Arguments>
  static const char* launch_row_mix(const Launcher& launcher, const AttentionParams& params,
                                    const AttentionTensors& tensors, int tiles, int num_z_blocks,
                                    const Arguments&... arguments) {
    const RowMixPlan plan = Body::Sizes::plan(params, launcher.max_shared_memory());
    const BlockOrder order = block_order<T>(launcher, params, tensors.batch, tiles);
    return launcher(Grid{order.num_blocks(), 1, num_z_blocks}, Body::kThreads, plan.shared_bytes,
                    Body{{params, plan, order, KernelTensors<T>(tensors)}, arguments...});
  }

  // If the row-mix kernels apply, calls visit(row_mix) with the RowMixTraits that serves the call, and returns true;
  // otherwise returns false. They apply to 16-bit types without relative positions, with up to 8 heads of size up to
  // 128 or up to 16 heads of size up to 64, if the tiles fit in `max_shared_bytes` bytes of shared memory.
  template <class Visit>
  static bool dispatch_row_mix(const AttentionParams& params, int max_shared_bytes, const Visit& visit) {
    const auto try_row_mix = [&](auto row_mix) {
      using Traits = decltype(row_mix);
      if (RowMixForwardTiles<Traits>::plan(params, max_shared_bytes).num_stages == 0 ||
          RowMixMatrixGradientTiles<Traits>::plan(params, max_shared_bytes).num_stages == 0 ||
          RowMixQueryGradientTiles<Traits>::plan(params, max_shared_bytes).num_stages == 0 ||
          RowMixKeyGradientTiles<Traits>::plan(params, max_shared_bytes).num_stages == 0)
        return false;
      visit(row_mix);
      return true;
    };
    if constexpr (sizeof(T) == 2 && kSize <= 128) {
      const int heads = std::max(params.heads, params.value_heads);
      if (params.has_relative_positions()) return false;
      if (heads <= 4) return try_row_mix(RowMixTraits<T, kSize, 4, 1>{});
      if (heads <= 8) return try_row_mix(RowMixTraits<T, kSize, 8, 1>{});
      if constexpr (kSize <= 64) {
        if (heads <= 16) return try_row_mix(RowMixTraits<T, kSize, 8, 2>{});
      }
    }
    return false;
  }

  template <class Traits, class Launcher>
  static const char* row_mix_backward(const Launcher& launcher, const AttentionParams& params,
                                      const AttentionTensors& tensors) {
    using MatrixGradientBody = RowMixMatrixGradient<Traits, T>;
    using QueryGradientBody = RowMixQueryGradient<Traits, T>;
    using KeyGradientBody = RowMixKeyGradient<Traits, T>;
    if (const char* problem = launch_row_mix<MatrixGradientBody>(
            launcher, params, tensors, num_tiles_of(params.queries, MatrixGradientBody::Sizes::kQueries), 1))
      return problem;
    if (const char* problem = launch_row_mix<QueryGradientBody>(
            launcher, params, tensors, num_tiles_of(params.queries, QueryGradientBody::Sizes::kQueries), 1))
      return problem;
    return launch_row_mix<KeyGradientBody>(launcher, params, tensors,
                                           num_tiles_of(params.keys, KeyGradientBody::Sizes::kKeys), 1);
  }
};

}  // namespace mh::kernels
