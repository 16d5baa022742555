// The tensor interface of the GPU attention kernels: strides, options of AttentionSpec, layout of gradients. The GPU
// kernels run in the emulator, thread by thread on the CPU. The results of the GPU kernels and of the CPU kernels are
// compared with the reference equations.
#include "attention/fused/fused_gpu.h"

#include <rapidcheck.h>

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "attention/fused/fused_cpu.h"
#include "attention/fused/head_mixing_cpu.h"
#include "emulator/host_launcher.h"
#include "fixtures/aten.h"
#include "fixtures/errors.h"
#include "fixtures/reduced_cases.h"
#include "nn/ops.h"
#include "oracle/spec_attention.h"

using namespace mh;
using namespace reference::spec;

namespace {

template <class T, int kSize>
attention::GpuKernels emulated_kernels() {
  using namespace kernels;
  using Launches = AttentionLaunches<T, kSize>;
  static const AttentionKernels kernel_table{
      kSize,
      [] {
        host::EmulatedGpu device;
        return Launches::relative_constraint(host::Launcher{device});
      },
      [](bool has_relative_positions) {
        host::EmulatedGpu device;
        return Launches::logit_term_constraint(host::Launcher{device}, has_relative_positions);
      },
      Launches::num_query_tiles,
      [](const AttentionParams& a, int64_t batch_size) {
        host::EmulatedGpu device;
        return Launches::num_splits(host::Launcher{device}, a, batch_size);
      },
      [](const AttentionParams& a, const AttentionTensors& x) {
        host::EmulatedGpu device;
        return Launches::forward(host::Launcher{device}, a, x);
      },
      [](const AttentionParams& a, const AttentionTensors& x) {
        host::EmulatedGpu device;
        return Launches::backward(host::Launcher{device}, a, x);
      },
      [](int num_heads, int num_value_heads, bool has_relative_positions) {
        host::EmulatedGpu device;
        return Launches::head_mixing_constraint(host::Launcher{device}, num_heads, num_value_heads,
                                                has_relative_positions);
      },
      [](const AttentionParams& a, int64_t batch_size) {
        host::EmulatedGpu device;
        return Launches::head_mixing_num_splits(host::Launcher{device}, a, batch_size);
      },
      [](const AttentionParams& a) {
        host::EmulatedGpu device;
        return Launches::head_mixing_num_matrix_gradients(host::Launcher{device}, a);
      },
      [](const AttentionParams& a, const AttentionTensors& x) {
        host::EmulatedGpu device;
        return Launches::head_mixing_forward(host::Launcher{device}, a, x);
      },
      [](const AttentionParams& a, const AttentionTensors& x) {
        host::EmulatedGpu device;
        return Launches::head_mixing_backward(host::Launcher{device}, a, x);
      }};
  return {&kernel_table, nullptr};
}

int64_t pick(int64_t low, int64_t high) { return *rc::gen::inRange<int64_t>(low, high + 1); }

// Draws the mask, normaliser, dropout and key/value heads of `x`. The operands of `x` must be set.
void draw_options(Inputs& x) {
  const int64_t batch_size = x.operands[kQ].size(0), num_heads = x.operands[kQ].size(1),
                num_queries = x.operands[kQ].size(2), num_keys = x.operands[kK].size(2),
                num_value_heads = x.operands[kV].size(1);
  attention::AttentionSpec& spec = x.spec;
  spec.causal = num_queries <= num_keys && pick(0, 1) == 1;
  if (spec.causal && pick(0, 1) == 1) spec.window = pick(1, num_keys);
  if (!spec.causal && pick(0, 1) == 1) spec.key_lengths = at::randint(-1, num_keys + 3, {batch_size}, at::kLong);
  if (pick(0, 2) == 0) spec.normaliser = kernels::Normaliser::sigsoftmax;
  if (x.operands[kMatrix].defined()) spec.dropout_before_mixing = pick(0, 1) == 1;
  if (pick(0, 2) == 0) {
    const nn::ForwardContext forward_context{true, 3, 2, 4,
                                             pick(0, 1) == 1 ? nn::DropoutIndex::position : nn::DropoutIndex::padded};
    const int64_t num_dropout_heads = spec.dropout_before_mixing ? num_heads : num_value_heads;
    x.dropout_mask = nn::dropout(at::ones({batch_size, num_dropout_heads, num_queries, num_keys}), 0.25,
                                 forward_context, "place", 4);
    spec.dropout = nn::dropout_range_of(x.dropout_mask.sizes(), 0.25, forward_context, "place", 4);
  }
  if (num_heads == num_value_heads && pick(0, 2) == 0)
    for (int64_t h = 0; h < num_heads; ++h) spec.kv_head_of.push_back(pick(0, num_heads - 1));
}

// Adds relative positions, with the keys divided into one or two ranges of consecutive positions.
void add_relative_positions(Inputs& x) {
  const int64_t num_heads = x.operands[kQ].size(1), num_queries = x.operands[kQ].size(2),
                num_keys = x.operands[kK].size(2), size = x.operands[kQ].size(3), first_range_keys = pick(1, num_keys),
                num_rows = num_queries + num_keys;
  x.spec.relative_positions.key_ranges = {{0, first_range_keys, 0}};
  if (first_range_keys < num_keys)
    x.spec.relative_positions.key_ranges.push_back({first_range_keys, num_keys - first_range_keys, num_rows});
  x.operands[kContentBias] = at::randn({num_heads, size}), x.operands[kPositionBias] = at::randn({num_heads, size});
  x.operands[kDistanceRows] = at::randn({num_heads, 2 * num_rows, size});
}

// Adds at least one logit term: a soft cap, sinks, a position bias with the keys in one or two ranges, or a window
// without a causal mask.
void add_logit_terms(Inputs& x) {
  const int64_t num_heads = x.operands[kQ].size(1), num_queries = x.operands[kQ].size(2),
                num_keys = x.operands[kK].size(2), first_range_keys = pick(1, num_keys),
                num_rows = num_queries + num_keys, terms = pick(1, 15);
  x.operands.resize(kNumOperands);
  if ((terms & 1) != 0) x.spec.soft_cap = 0.5 * static_cast<double>(pick(1, 8));
  if ((terms & 2) != 0) x.operands[kSinks] = at::randn({num_heads});
  if ((terms & 4) != 0) {
    x.spec.position_bias.key_ranges = {{0, first_range_keys, 0}};
    if (first_range_keys < num_keys)
      x.spec.position_bias.key_ranges.push_back({first_range_keys, num_keys - first_range_keys, num_rows});
    x.operands[kDistanceBias] = at::randn({num_heads, 2 * num_rows});
  }
  if ((terms & 8) != 0 && !x.spec.causal) x.spec.window = pick(1, num_keys);
}

// Checks the results of the GPU and CPU kernels, in fp32 or bf16, against the reference equations, and that both
// kernels return the same types. kSize: head size of the GPU kernels.
template <int kSize>
void check_kernels(const Inputs& x, bool is_bf16) {
  const auto type = is_bf16 ? at::kBFloat16 : at::kFloat;
  const auto gpu = is_bf16 ? emulated_kernels<kernels::Bf16, kSize>() : emulated_kernels<float, kSize>();
  const auto attend_fused = [&](bool is_on_gpu) {
    return [&gpu, is_on_gpu](const Inputs& inputs, const Tensors& t) {
      attention::AttentionSpec p = inputs.spec;
      p.head_scales = t[kHeadScales], p.relative_positions.u = t[kContentBias],
      p.relative_positions.v = t[kPositionBias], p.relative_positions.r = t[kDistanceRows];
      p.sinks = operand(t, kSinks), p.position_bias.bias = operand(t, kDistanceBias);
      if (t[kMatrix].defined())
        return is_on_gpu ? attention::head_mixing_gpu(gpu, t[kQ], t[kK], t[kV], t[kMatrix], p)
                         : attention::head_mixing_cpu(t[kQ], t[kK], t[kV], t[kMatrix], p);
      return is_on_gpu ? attention::fused_gpu(gpu, t[kQ], t[kK], t[kV], p)
                       : attention::fused_cpu(t[kQ], t[kK], t[kV], p);
    };
  };
  const Tensors exact = run_with_gradients(x, type, at::kDouble, at::kCPU, composed_attention),
                composed_results = run_with_gradients(x, type, type, at::kCPU, composed_attention),
                magnitudes = term_magnitudes(x, type),
                gpu_results = run_with_gradients(x, type, type, at::kCPU, attend_fused(true)),
                cpu_results = run_with_gradients(x, type, type, at::kCPU, attend_fused(false));
  RC_ASSERT(gpu_results.size() == cpu_results.size());
  for (size_t i = 0; i < gpu_results.size(); ++i)
    RC_ASSERT(gpu_results[i].scalar_type() == cpu_results[i].scalar_type());
  for (const Tensors* actual : {&gpu_results, &cpu_results}) {
    const std::string excess_error =
        numbers::find_excess_error(*actual, composed_results, exact, type, magnitudes,
                                   actual == &gpu_results && !is_bf16 ? logit_magnitude(x, type) : 0);
    RC_LOG() << (actual == &gpu_results ? "GPU: " : "CPU: ") << excess_error << "\n";
    RC_ASSERT(excess_error.empty());
  }
}

// Returns a random tensor (batch_size, num_heads, length, size), stored as (batch_size, length, num_heads, size).
at::Tensor random_heads(int64_t batch_size, int64_t num_heads, int64_t length, int64_t size) {
  return at::randn({batch_size, length, num_heads, size}).transpose(1, 2);
}

// Returns random head scales (num_heads) or (batch_size, num_heads), or an undefined tensor.
at::Tensor random_scales(int64_t batch_size, int64_t num_heads) {
  const int64_t dimensions = pick(0, 2);
  return dimensions == 0 ? at::Tensor() : dimensions == 1 ? at::randn({num_heads}) : at::randn({batch_size, num_heads});
}

}  // namespace

TEST_CASE("emulated GPU and CPU attention kernels match the reference equations over random options",
          "[attention][policy]") {
  CHECK(check_reduced("attention over random options", [] {
    at::manual_seed(*rc::gen::inRange<uint64_t>(0, 1 << 30));
    const int64_t batch_size = pick(1, 2), num_heads = pick(1, 3), num_queries = pick(1, 40), num_keys = pick(1, 70),
                  size = 16 * pick(1, 2);
    const bool is_bf16 = pick(0, 1) == 1;
    Inputs x{{random_heads(batch_size, num_heads, num_queries, size),
              random_heads(batch_size, num_heads, num_keys, size),
              random_heads(batch_size, num_heads, num_keys, size),
              {},
              random_scales(batch_size, num_heads),
              {},
              {},
              {}},
             at::randn({batch_size, num_heads, num_queries, size}),
             {},
             {}};
    draw_options(x);
    if (pick(0, 1) == 1) add_relative_positions(x);
    check_kernels<32>(x, is_bf16);
  }));
}

TEST_CASE("emulated GPU and CPU attention kernels with logit terms match the reference equations over random options",
          "[attention][policy]") {
  CHECK(check_reduced("attention with logit terms over random options", [] {
    at::manual_seed(*rc::gen::inRange<uint64_t>(0, 1 << 30));
    const int64_t batch_size = pick(1, 2), num_heads = pick(1, 3), num_queries = pick(1, 40), num_keys = pick(1, 70),
                  size = 16 * pick(1, 4);
    const bool is_bf16 = pick(0, 1) == 1;
    Inputs x{{random_heads(batch_size, num_heads, num_queries, size),
              random_heads(batch_size, num_heads, num_keys, size),
              random_heads(batch_size, num_heads, num_keys, size),
              {},
              random_scales(batch_size, num_heads),
              {},
              {},
              {}},
             at::randn({batch_size, num_heads, num_queries, size}),
             {},
             {}};
    draw_options(x);
    add_logit_terms(x);
    check_kernels<64>(x, is_bf16);
  }));
}

TEST_CASE("emulated GPU and CPU head mixing kernels match the reference equations over random options",
          "[attention][head-mixing]") {
  CHECK(check_reduced("head mixing over random options", [] {
    at::manual_seed(*rc::gen::inRange<uint64_t>(0, 1 << 30));
    const int64_t batch_size = pick(1, 2), num_heads = pick(1, 4), num_value_heads = pick(1, 4),
                  num_queries = pick(1, 30), num_keys = pick(1, 40);
    const int64_t key_size = pick(1, 32), value_size = pick(1, 32);
    const bool is_bf16 = pick(0, 1) == 1;
    const int64_t matrix_form = pick(0, 2);
    Inputs x{{random_heads(batch_size, num_heads, num_queries, key_size),
              random_heads(batch_size, num_heads, num_keys, key_size),
              random_heads(batch_size, num_value_heads, num_keys, value_size),
              matrix_form == 0   ? at::randn({num_heads, num_value_heads})
              : matrix_form == 1 ? at::randn({batch_size, num_heads, num_value_heads})
                                 : at::randn({batch_size, num_queries, num_heads, num_value_heads}),
              random_scales(batch_size, num_value_heads),
              {},
              {},
              {}},
             at::randn({batch_size, num_value_heads, num_queries, value_size}),
             {},
             {}};
    draw_options(x);
    if (pick(0, 1) == 1) add_relative_positions(x);
    check_kernels<32>(x, is_bf16);
  }));
}
