// What stands between tensors and the attention kernels of a GPU: strides, policies, places of gradients. The kernels
// run thread by thread on the CPU, on its tensors, and are compared with those of the CPU.
#include "attention/fused/fused_gpu.h"

#include <ATen/ATen.h>
#include <rapidcheck.h>

#include <array>
#include <catch2/catch.hpp>
#include <vector>

#include "attention/fused/fused_cpu.h"
#include "attention/fused/mixed_cpu.h"
#include "emulator/host_launcher.h"
#include "fixtures/numbers.h"
#include "fixtures/reduced_cases.h"

using namespace mh;
using numbers::error;
using numbers::size_of;

namespace {

template <class T>
attention::GpuKernels emulated() {
  using namespace kernels;
  using Launches = AttentionLaunches<T, 32>;
  static const AttentionKernels all{32,
                                    [] {
                                      host::Device device;
                                      return Launches::relative_lacks(host::Launcher{device});
                                    },
                                    Launches::scale_tiles,
                                    [](const AttentionCall& a, int64_t batch) {
                                      host::Device device;
                                      return Launches::key_parts(host::Launcher{device}, a, batch);
                                    },
                                    [](const AttentionCall& a, const AttentionTensors& x) {
                                      host::Device device;
                                      return Launches::forward(host::Launcher{device}, a, x);
                                    },
                                    [](const AttentionCall& a, const AttentionTensors& x) {
                                      host::Device device;
                                      return Launches::backward(host::Launcher{device}, a, x);
                                    },
                                    [](int in, int heads, bool relative) {
                                      host::Device device;
                                      return Launches::mixed_lacks(host::Launcher{device}, in, heads, relative);
                                    },
                                    [](const MixedCall& a, int64_t batch) {
                                      host::Device device;
                                      return Launches::mixed_key_parts(host::Launcher{device}, a, batch);
                                    },
                                    [](const MixedCall& a, const AttentionTensors& x) {
                                      host::Device device;
                                      return Launches::mixed_forward(host::Launcher{device}, a, x);
                                    },
                                    [](const MixedCall& a, const AttentionTensors& x) {
                                      host::Device device;
                                      return Launches::mixed_backward(host::Launcher{device}, a, x);
                                    }};
  return {&all, nullptr};
}

int64_t pick(int64_t low, int64_t high) { return *rc::gen::inRange<int64_t>(low, high + 1); }

attention::FusedPolicy drawn(int64_t batch, int64_t heads, int64_t queries, int64_t keys, int64_t elements) {
  attention::FusedPolicy policy;
  policy.causal = queries <= keys && pick(0, 1) == 1;
  if (policy.causal && pick(0, 1) == 1) policy.window = pick(1, keys);
  if (!policy.causal && pick(0, 1) == 1) policy.key_lengths = at::randint(-1, keys + 3, {batch}, at::kLong);
  if (pick(0, 2) == 0) policy.normaliser = kernels::Normaliser::sigsoftmax;
  if (pick(0, 2) == 0) policy.drops = {{{1, 2}, 3, 4, 1 << 22, 4.0F / 3}, static_cast<uint64_t>(elements)};
  if (pick(0, 2) == 0)
    for (int64_t h = 0; h < heads; ++h) policy.key_heads.push_back(pick(0, heads - 1));
  return policy;
}

// Keys in two runs, and u, v and r of `tensors`.
void add_positions(attention::FusedPolicy& policy, const std::array<at::Tensor*, 3>& tensors, int64_t heads,
                   int64_t queries, int64_t keys, int64_t size, at::ScalarType type) {
  const int64_t first = pick(1, keys), rows = queries + keys;
  policy.relative.runs = {{0, first, 0}};
  if (first < keys) policy.relative.runs.push_back({first, keys - first, rows});
  *tensors[0] = at::randn({heads, size}), *tensors[1] = at::randn({heads, size});
  *tensors[2] = at::randn({heads, 2 * rows, size}).to(type);
}

// The result and all gradients, by `attend` of leaves.
template <class Attend>
std::vector<at::Tensor> results(const std::vector<at::Tensor>& given, const at::Tensor& dout, const Attend& attend) {
  std::vector<at::Tensor> leaves, all;
  for (const at::Tensor& t : given) leaves.push_back(t.defined() ? t.detach().clone().requires_grad_() : at::Tensor());
  all.push_back(attend(leaves));
  all[0].backward(dout);
  for (const at::Tensor& t : leaves)
    if (t.defined()) all.push_back(t.grad());
  all[0] = all[0].detach();
  return all;
}

void compare(const std::vector<at::Tensor>& found, const std::vector<at::Tensor>& wanted, bool bf16) {
  RC_ASSERT(found.size() == wanted.size());
  for (size_t i = 0; i < found.size(); ++i) {
    RC_ASSERT(found[i].scalar_type() == wanted[i].scalar_type());
    const double bound = (bf16 ? 4e-2 : 2e-5) * (1 + size_of(wanted[i]));
    RC_LOG() << "result " << i << ": " << error(found[i], wanted[i]) << " of " << bound << "\n";
    RC_ASSERT(error(found[i], wanted[i]) <= bound);
  }
}

}  // namespace

TEST_CASE("attention by the kernels of a GPU is that of the CPU's, for all that a policy says", "[attention][policy]") {
  CHECK(check_few("over random policies", [] {
    at::manual_seed(*rc::gen::inRange<uint64_t>(0, 1 << 30));
    const int64_t batch = pick(1, 2), heads = pick(1, 3), queries = pick(1, 40), keys = pick(1, 70),
                  size = 16 * pick(1, 2);
    const bool bf16 = pick(0, 1) == 1;
    const auto type = bf16 ? at::kBFloat16 : at::kFloat;
    const auto made = [&](int64_t length) { return at::randn({batch, length, heads, size}).to(type).transpose(1, 2); };
    attention::FusedPolicy policy = drawn(batch, heads, queries, keys, 12345);
    const int64_t scales = pick(0, 2);
    std::vector<at::Tensor> given{made(queries),
                                  made(keys),
                                  made(keys),
                                  scales == 0   ? at::Tensor()
                                  : scales == 1 ? at::randn({heads})
                                                : at::randn({batch, heads}),
                                  {},
                                  {},
                                  {}};
    if (pick(0, 1) == 1) add_positions(policy, {&given[4], &given[5], &given[6]}, heads, queries, keys, size, type);
    const at::Tensor dout = at::randn({batch, heads, queries, size}).to(type);
    const auto with = [&](const std::vector<at::Tensor>& x) {
      attention::FusedPolicy p = policy;
      p.head_scales = x[3], p.relative.u = x[4], p.relative.v = x[5], p.relative.r = x[6];
      return p;
    };
    const auto gpu = bf16 ? emulated<kernels::Bf16>() : emulated<float>();
    compare(results(given, dout, [&](const auto& x) { return attention::fused_gpu(gpu, x[0], x[1], x[2], with(x)); }),
            results(given, dout, [&](const auto& x) { return attention::fused_cpu(x[0], x[1], x[2], with(x)); }), bf16);
  }));
}

TEST_CASE("mixed heads by the kernels of a GPU are those of the CPU's, for all that a policy says",
          "[attention][mixed]") {
  CHECK(check_few("over random policies", [] {
    at::manual_seed(*rc::gen::inRange<uint64_t>(0, 1 << 30));
    const int64_t batch = pick(1, 2), heads = pick(1, 4), values = pick(1, 4), queries = pick(1, 30),
                  keys = pick(1, 40);
    const int64_t key_size = pick(1, 32), value_size = pick(1, 32);
    const bool bf16 = pick(0, 1) == 1;
    const auto type = bf16 ? at::kBFloat16 : at::kFloat;
    const auto made = [&](int64_t h, int64_t length, int64_t size) {
      return at::randn({batch, length, h, size}).to(type).transpose(1, 2);
    };
    attention::FusedPolicy policy = drawn(batch, heads, queries, keys, 777);
    if (heads != values) policy.key_heads.clear();
    policy.dropped_before_mixing = pick(0, 1) == 1;
    const int64_t of_matrix = pick(0, 2), scales = pick(0, 2);
    std::vector<at::Tensor> given{made(heads, queries, key_size),
                                  made(heads, keys, key_size),
                                  made(values, keys, value_size),
                                  of_matrix == 0   ? at::randn({heads, values})
                                  : of_matrix == 1 ? at::randn({batch, heads, values})
                                                   : at::randn({batch, queries, heads, values}),
                                  scales == 0   ? at::Tensor()
                                  : scales == 1 ? at::randn({values})
                                                : at::randn({batch, values}),
                                  {},
                                  {},
                                  {}};
    if (pick(0, 1) == 1) add_positions(policy, {&given[5], &given[6], &given[7]}, heads, queries, keys, key_size, type);
    const at::Tensor dout = at::randn({batch, values, queries, value_size}).to(type);
    const auto with = [&](const std::vector<at::Tensor>& x) {
      attention::FusedPolicy p = policy;
      p.head_scales = x[4], p.relative.u = x[5], p.relative.v = x[6], p.relative.r = x[7];
      return p;
    };
    const auto gpu = bf16 ? emulated<kernels::Bf16>() : emulated<float>();
    compare(
        results(given, dout, [&](const auto& x) { return attention::mixed_gpu(gpu, x[0], x[1], x[2], x[3], with(x)); }),
        results(given, dout, [&](const auto& x) { return attention::mixed_cpu(x[0], x[1], x[2], x[3], with(x)); }),
        bf16);
  }));
}
