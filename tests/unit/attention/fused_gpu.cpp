// The attention kernels of a GPU on tensors: strides, policies, places of gradients. The kernels run thread by thread
// on the CPU, on its tensors; they and those of the CPU are compared with the equations.
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
#include "oracle/fused_policy.h"

using namespace mh;
using namespace reference::policy;

namespace {

template <class T>
attention::GpuKernels emulated() {
  using namespace kernels;
  using Launches = AttentionLaunches<T, 32>;
  static const AttentionKernels all{32,
                                    [] {
                                      host::Device device;
                                      return Launches::why_no_relative(host::Launcher{device});
                                    },
                                    Launches::scale_tiles,
                                    [](const AttentionParams& a, int64_t batch) {
                                      host::Device device;
                                      return Launches::num_splits(host::Launcher{device}, a, batch);
                                    },
                                    [](const AttentionParams& a, const AttentionTensors& x) {
                                      host::Device device;
                                      return Launches::forward(host::Launcher{device}, a, x);
                                    },
                                    [](const AttentionParams& a, const AttentionTensors& x) {
                                      host::Device device;
                                      return Launches::backward(host::Launcher{device}, a, x);
                                    },
                                    [](int in, int heads, bool relative) {
                                      host::Device device;
                                      return Launches::why_no_head_mixing(host::Launcher{device}, in, heads, relative);
                                    },
                                    [](const AttentionParams& a, int64_t batch) {
                                      host::Device device;
                                      return Launches::head_mixing_num_splits(host::Launcher{device}, a, batch);
                                    },
                                    [](const AttentionParams& a) {
                                      host::Device device;
                                      return Launches::head_mixing_gradients(host::Launcher{device}, a);
                                    },
                                    [](const AttentionParams& a, const AttentionTensors& x) {
                                      host::Device device;
                                      return Launches::head_mixing_forward(host::Launcher{device}, a, x);
                                    },
                                    [](const AttentionParams& a, const AttentionTensors& x) {
                                      host::Device device;
                                      return Launches::head_mixing_backward(host::Launcher{device}, a, x);
                                    }};
  return {&all, nullptr};
}

int64_t pick(int64_t low, int64_t high) { return *rc::gen::inRange<int64_t>(low, high + 1); }

void draw_policy(Inputs& x) {
  const int64_t batch = x.given[kQ].size(0), heads = x.given[kQ].size(1), queries = x.given[kQ].size(2),
                keys = x.given[kK].size(2), out = x.given[kV].size(1);
  attention::AttentionSpec& policy = x.policy;
  policy.causal = queries <= keys && pick(0, 1) == 1;
  if (policy.causal && pick(0, 1) == 1) policy.window = pick(1, keys);
  if (!policy.causal && pick(0, 1) == 1) policy.key_lengths = at::randint(-1, keys + 3, {batch}, at::kLong);
  if (pick(0, 2) == 0) policy.normaliser = kernels::Normaliser::sigsoftmax;
  if (x.given[kM].defined()) policy.dropout_before_mixing = pick(0, 1) == 1;
  if (pick(0, 2) == 0) {
    const nn::ForwardContext step{true, 3, 2, 4};
    const int64_t dropped = policy.dropout_before_mixing ? heads : out;
    x.kept = nn::dropout(at::ones({batch, dropped, queries, keys}), 0.25, step, "place", 4);
    policy.dropout = nn::dropout_from(dropped * queries * keys, 0.25, step, "place", 4);
  }
  if (heads == out && pick(0, 2) == 0)
    for (int64_t h = 0; h < heads; ++h) policy.key_heads.push_back(pick(0, heads - 1));
}

// Relative positions of keys in two runs.
void add_positions(Inputs& x) {
  const int64_t heads = x.given[kQ].size(1), queries = x.given[kQ].size(2), keys = x.given[kK].size(2),
                size = x.given[kQ].size(3), first = pick(1, keys), rows = queries + keys;
  x.policy.relative.runs = {{0, first, 0}};
  if (first < keys) x.policy.relative.runs.push_back({first, keys - first, rows});
  x.given[kU] = at::randn({heads, size}), x.given[kBias] = at::randn({heads, size});
  x.given[kR] = at::randn({heads, 2 * rows, size});
}

// Compares the kernels of a GPU and those of the CPU, each in its own types, with the equations.
void check(const Inputs& x, bool bf16) {
  const auto type = bf16 ? at::kBFloat16 : at::kFloat;
  const auto gpu = bf16 ? emulated<kernels::Bf16>() : emulated<float>();
  const auto by_kernel = [&](bool on_gpu) {
    return [&gpu, on_gpu](const Inputs& given, const Tensors& t) {
      attention::AttentionSpec p = given.policy;
      p.head_scales = t[kScales], p.relative.u = t[kU], p.relative.v = t[kBias], p.relative.r = t[kR];
      if (t[kM].defined())
        return on_gpu ? attention::head_mixing_gpu(gpu, t[kQ], t[kK], t[kV], t[kM], p)
                      : attention::head_mixing_cpu(t[kQ], t[kK], t[kV], t[kM], p);
      return on_gpu ? attention::fused_gpu(gpu, t[kQ], t[kK], t[kV], p) : attention::fused_cpu(t[kQ], t[kK], t[kV], p);
    };
  };
  const Tensors exact = results(x, type, at::kDouble, at::kCPU, composed),
                beside = results(x, type, type, at::kCPU, composed), sizes = without_signs(x, type),
                found = results(x, type, type, at::kCPU, by_kernel(true)),
                by_cpu = results(x, type, type, at::kCPU, by_kernel(false));
  RC_ASSERT(found.size() == by_cpu.size());
  for (size_t i = 0; i < found.size(); ++i) RC_ASSERT(found[i].scalar_type() == by_cpu[i].scalar_type());
  for (const Tensors* one : {&found, &by_cpu}) {
    const std::string fault = numbers::fault_beside_composed(*one, beside, exact, type, sizes,
                                                             one == &found && !bf16 ? logit_size(x, type) : 0);
    RC_LOG() << (one == &found ? "GPU: " : "CPU: ") << fault << "\n";
    RC_ASSERT(fault.empty());
  }
}

at::Tensor heads_of(int64_t batch, int64_t heads, int64_t length, int64_t size) {
  return at::randn({batch, length, heads, size}).transpose(1, 2);
}

// Scales of heads, or none.
at::Tensor scales_of(int64_t batch, int64_t heads) {
  const int64_t dimensions = pick(0, 2);
  return dimensions == 0 ? at::Tensor() : dimensions == 1 ? at::randn({heads}) : at::randn({batch, heads});
}

}  // namespace

TEST_CASE("attention by the kernels of a GPU is that of the equations, for all that a policy says",
          "[attention][policy]") {
  CHECK(check_few("over random policies", [] {
    at::manual_seed(*rc::gen::inRange<uint64_t>(0, 1 << 30));
    const int64_t batch = pick(1, 2), heads = pick(1, 3), queries = pick(1, 40), keys = pick(1, 70),
                  size = 16 * pick(1, 2);
    const bool bf16 = pick(0, 1) == 1;
    Inputs x{{heads_of(batch, heads, queries, size),
              heads_of(batch, heads, keys, size),
              heads_of(batch, heads, keys, size),
              {},
              scales_of(batch, heads),
              {},
              {},
              {}},
             at::randn({batch, heads, queries, size}),
             {},
             {}};
    draw_policy(x);
    if (pick(0, 1) == 1) add_positions(x);
    check(x, bf16);
  }));
}

TEST_CASE("mixed heads by the kernels of a GPU are those of the equations, for all that a policy says",
          "[attention][mixed]") {
  CHECK(check_few("over random policies", [] {
    at::manual_seed(*rc::gen::inRange<uint64_t>(0, 1 << 30));
    const int64_t batch = pick(1, 2), heads = pick(1, 4), values = pick(1, 4), queries = pick(1, 30),
                  keys = pick(1, 40);
    const int64_t key_size = pick(1, 32), value_size = pick(1, 32);
    const bool bf16 = pick(0, 1) == 1;
    const int64_t of_matrix = pick(0, 2);
    Inputs x{{heads_of(batch, heads, queries, key_size),
              heads_of(batch, heads, keys, key_size),
              heads_of(batch, values, keys, value_size),
              of_matrix == 0   ? at::randn({heads, values})
              : of_matrix == 1 ? at::randn({batch, heads, values})
                               : at::randn({batch, queries, heads, values}),
              scales_of(batch, values),
              {},
              {},
              {}},
             at::randn({batch, values, queries, value_size}),
             {},
             {}};
    draw_policy(x);
    if (pick(0, 1) == 1) add_positions(x);
    check(x, bf16);
  }));
}
