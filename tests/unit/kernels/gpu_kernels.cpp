// The attention kernels on a GPU: `torch-tests --device cuda`. The result and every gradient are no further from the
// equations in double than twice what the same equations give on the GPU, in the same type, by the tensor library.
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "attention/fused/fused_gpu.h"
#include "base/error.h"
#include "fixtures/aten.h"
#include "fixtures/device.h"
#include "fixtures/errors.h"
#include "fixtures/numbers.h"
#include "fixtures/skip.h"
#include "nn/device.h"
#include "nn/ops.h"
#include "oracle/fused_policy.h"

using namespace mh;
using namespace reference::policy;

namespace {

struct Sizes {
  int64_t batch, in, out, key_size, value_size;
  int64_t matrix = 0;  // dimensions of m; 0: nothing mixes
};

struct Case {
  const char* what;
  int64_t queries, keys;
  bool causal = false;
  int64_t window = 0;
  bool lengths = false;  // of keys, none of the first row
  bool sigsoftmax = false;
  double dropout = 0;
  bool before = false;    // mixing
  bool pairs = false;     // heads read keys and values of others
  int64_t scales = 0;     // dimensions of scales of heads; 0: none
  bool relative = false;  // positions, of keys in two runs
};

const Case kCases[] = {
    {.what = "all keys", .queries = 77, .keys = 131},
    {.what = "one query", .queries = 1, .keys = 129},
    {.what = "one key", .queries = 33, .keys = 1},
    {.what = "causal", .queries = 131, .keys = 131, .causal = true},
    {.what = "causal, more keys than queries", .queries = 33, .keys = 151, .causal = true},
    {.what = "causal, one query", .queries = 1, .keys = 71, .causal = true},
    {.what = "a window", .queries = 131, .keys = 161, .causal = true, .window = 17},
    {.what = "a window of one key", .queries = 35, .keys = 35, .causal = true, .window = 1},
    {.what = "lengths of keys", .queries = 45, .keys = 77, .lengths = true},
    {.what = "Sigsoftmax", .queries = 67, .keys = 67, .causal = true, .sigsoftmax = true},
    {.what = "dropout", .queries = 65, .keys = 99, .dropout = 0.3},
    {.what = "dropout before mixing", .queries = 37, .keys = 99, .dropout = 0.3, .before = true},
    {.what = "heads that read others", .queries = 41, .keys = 71, .pairs = true},
    {.what = "scales of heads", .queries = 51, .keys = 91, .scales = 1},
    {.what = "scales of heads of rows", .queries = 51, .keys = 91, .lengths = true, .scales = 2},
    {.what = "all at once",
     .queries = 61,
     .keys = 93,
     .causal = true,
     .window = 29,
     .sigsoftmax = true,
     .dropout = 0.3,
     .pairs = true,
     .scales = 2},
};

const Case kRelativeCases[] = {
    {.what = "relative, all keys", .queries = 77, .keys = 131, .relative = true},
    {.what = "relative, one query", .queries = 1, .keys = 71, .causal = true, .relative = true},
    {.what = "relative, causal", .queries = 33, .keys = 151, .causal = true, .relative = true},
    {.what = "relative, lengths of keys", .queries = 45, .keys = 77, .lengths = true, .relative = true},
    {.what = "relative, all at once",
     .queries = 61,
     .keys = 93,
     .causal = true,
     .window = 29,
     .sigsoftmax = true,
     .dropout = 0.3,
     .pairs = true,
     .scales = 2,
     .relative = true},
};

Inputs drawn(const Case& c, const Sizes& z) {
  const auto rows = [&](int64_t heads, int64_t length, int64_t size) {  // as a joint projection gives them
    return at::randn({z.batch, length, heads, size}).transpose(1, 2);
  };
  const at::Tensor m = z.matrix == 2   ? at::randn({z.in, z.out})
                       : z.matrix == 3 ? at::randn({z.batch, z.in, z.out})
                       : z.matrix == 4 ? at::randn({z.batch, c.queries, z.in, z.out})
                                       : at::Tensor();
  const at::Tensor scales = c.scales == 1   ? at::randn({z.out})
                            : c.scales == 2 ? at::randn({z.batch, z.out})
                                            : at::Tensor();
  Inputs x{{rows(z.in, c.queries, z.key_size),
            rows(z.in, c.keys, z.key_size),
            rows(z.out, c.keys, z.value_size),
            m,
            scales,
            {},
            {},
            {}},
           rows(z.out, c.queries, z.value_size),
           {c.causal, c.window},
           {}};
  if (c.lengths) {
    x.policy.key_lengths = at::randint(1, c.keys + 1, {z.batch}, at::kLong);
    x.policy.key_lengths[0] = 0;
  }
  if (c.sigsoftmax) x.policy.normaliser = kernels::Normaliser::sigsoftmax;
  if (c.dropout > 0) {
    const nn::ForwardContext step{true, 7, 3, 2};
    const int64_t heads = c.before ? z.in : z.out;
    x.policy.dropout_before_mixing = c.before;
    x.policy.dropout = nn::dropout_from(heads * c.queries * c.keys, c.dropout, step, "place", 1);
    x.dropout_mask = nn::dropout(at::ones({z.batch, heads, c.queries, c.keys}), c.dropout, step, "place", 1);
  }
  if (c.relative) {
    const int64_t first = c.keys / 3, distances = c.queries + c.keys;
    x.policy.relative.runs = {{0, first, 0}, {first, c.keys - first, distances}};
    x.operands[kU] = at::randn({z.in, z.key_size}), x.operands[kBias] = at::randn({z.in, z.key_size});
    x.operands[kR] = at::randn({z.in, 2 * distances, z.key_size});
  }
  if (c.pairs && z.in == z.out)
    for (int64_t h = 0; h < z.in; ++h) x.policy.key_heads.push_back(h * h % z.in);
  return x;
}

at::Tensor by_kernel(const Inputs& x, const Tensors& t) {
  AttentionSpec policy = x.policy;
  policy.head_scales = t[kScales];
  policy.relative.u = t[kU], policy.relative.v = t[kBias], policy.relative.r = t[kR];
  const attention::GpuKernels gpu = attention::gpu_kernels(t[kQ], t[kK], t[kV]);
  return t[kM].defined() ? attention::head_mixing_gpu(gpu, t[kQ], t[kK], t[kV], t[kM], policy)
                         : attention::fused_gpu(gpu, t[kQ], t[kK], t[kV], policy);
}

void check(const Case& c, const Sizes& z, at::ScalarType type, at::Device gpu) {
  const Inputs x = drawn(c, z);
  INFO(c.what << "; rows " << z.batch << ", heads " << z.in << " and " << z.out << ", sizes " << z.key_size << " and "
              << z.value_size << ", matrix of " << z.matrix << " dimensions, " << c10::toString(type));
  Tensors found;  // a case that throws leaves the others
  try {
    found = results(x, type, type, gpu, by_kernel);
  } catch (const std::exception& thrown) {
    FAIL_CHECK(thrown.what());
    return;
  }
  Tensors sizes = term_magnitudes(x, type);
  if (type == at::kHalf && z.matrix > 0)
    for (const size_t of_mixed : {size_t{0}, size_t{kV + 1}}) sizes[of_mixed] *= tolerance::kExchangedFp16;
  CHECK(numbers::fault_beside_composed(found, results(x, type, type, gpu, composed),
                                       results(x, type, at::kDouble, at::kCPU, composed), type, sizes,
                                       type == at::kFloat ? logit_size(x, type) : 0) == "");
}

// Why this build has no kernels for these, mixed or not; empty: it has.
std::string lacks(at::ScalarType type, int64_t size, int64_t in, int64_t out, bool mixes, bool relative = false) {
  attention::LayerSpec shape;
  shape.heads = in, shape.value_heads = out, shape.key_size = shape.value_size = size;
  return attention::why_not_fused_on_gpu(type, shape, mixes, relative);
}

#define NEEDS_GPU                                           \
  if (test_device() != "cuda") SKIP("needs --device cuda"); \
  static const at::Device gpu = nn::choose_device("cuda")

constexpr int64_t kHeadSizes[] = {32, 35, 40, 64, 128};

}  // namespace

TEMPLATE_TEST_CASE("attention by the kernels on a GPU", "[cuda-device]", float, at::BFloat16, at::Half) {
  NEEDS_GPU;
  at::manual_seed(51);
  constexpr at::ScalarType type = c10::CppTypeToScalarType<TestType>::value;
  std::string missing;
  for (const int64_t size : kHeadSizes) {
    if (missing = lacks(type, size, 3, 3, false); !missing.empty()) break;
    for (const Case& c : kCases) check(c, {3, 3, 3, size, size}, type, gpu);
  }
  if (!missing.empty()) SKIP(missing);
}

TEMPLATE_TEST_CASE("mixed heads by the kernels on a GPU", "[cuda-device]", float, at::BFloat16, at::Half) {
  NEEDS_GPU;
  at::manual_seed(52);
  constexpr at::ScalarType type = c10::CppTypeToScalarType<TestType>::value;
  std::string missing;
  int64_t turn = 0;  // another matrix for each case by the next size
  for (const int64_t size : kHeadSizes) {
    if (missing = lacks(type, size, 5, 5, true); !missing.empty()) break;
    for (const Case& c : kCases) check(c, {2, 5, c.pairs ? 5 : 3, size, size, 2 + turn++ % 3}, type, gpu);
    check(kCases[0], {2, 4, 4, size, size / 2, 2}, type, gpu);
    check(kCases[3], {2, 4, 4, size / 2, size, 4}, type, gpu);
  }
  if (!missing.empty()) SKIP(missing);
}

TEMPLATE_TEST_CASE("relative positions by the kernels on a GPU, of mixed heads and others", "[cuda-device]", float,
                   at::BFloat16, at::Half) {
  NEEDS_GPU;
  at::manual_seed(56);
  constexpr at::ScalarType type = c10::CppTypeToScalarType<TestType>::value;
  std::string missing;
  int64_t turn = 0;
  for (const int64_t size : kHeadSizes) {
    if (missing = lacks(type, size, 3, 3, false, true); !missing.empty()) break;
    if (missing = lacks(type, size, 5, 5, true, true); !missing.empty()) break;
    for (const Case& c : kRelativeCases) {
      check(c, {2, 3, 3, size, size}, type, gpu);
      check(c, {2, 5, c.pairs ? 5 : 3, size, size, 2 + turn++ % 3}, type, gpu);
    }
  }
  if (missing = lacks(type, 64, 32, 32, true, true); missing.empty())
    check(kRelativeCases[2], {1, 32, 32, 64, 64, 4}, type, gpu);
  if (!missing.empty()) SKIP(missing);
}

TEMPLATE_TEST_CASE("one to 32 mixed heads on a GPU", "[cuda-device]", float, at::BFloat16, at::Half) {
  NEEDS_GPU;
  at::manual_seed(53);
  constexpr at::ScalarType type = c10::CppTypeToScalarType<TestType>::value;
  const Case cases[] = {{.what = "all keys", .queries = 35, .keys = 77},
                        {.what = "causal", .queries = 67, .keys = 67, .causal = true, .dropout = 0.3}};
  std::string missing;
  for (const auto& [in, out] :
       {std::pair<int64_t, int64_t>{1, 1}, {1, 4}, {4, 1}, {8, 8}, {16, 16}, {12, 32}, {32, 32}}) {
    if (const std::string reason = lacks(type, 64, in, out, true); !reason.empty()) {
      missing = str(in, " heads and ", out, ": ", reason);
      continue;
    }
    for (const int64_t matrix : {2, 4})
      for (const Case& c : cases) check(c, {2, in, out, 64, 64, matrix}, type, gpu);
  }
  if (!missing.empty()) SKIP(missing);
}

TEST_CASE("a small call of each kernel on a GPU, for tools that watch memory", "[cuda-device][small]") {
  NEEDS_GPU;
  at::manual_seed(54);
  const Case small{.what = "causal", .queries = 35, .keys = 71, .causal = true, .dropout = 0.3, .scales = 2};
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kHalf}) {
    if (const std::string missing = lacks(type, 64, 3, 2, true); !missing.empty()) SKIP(missing);
    check(small, {1, 2, 2, 64, 64}, type, gpu);
    for (const int64_t matrix : {2, 4}) check(small, {1, 3, 2, 64, 64, matrix}, type, gpu);
    Case relative = small;
    relative.relative = true;
    if (lacks(type, 64, 3, 2, true, true).empty()) check(relative, {1, 3, 2, 64, 64, 2}, type, gpu);
  }
}

TEST_CASE("kernels on a GPU give the same bits twice, and on another stream", "[cuda-device]") {
  NEEDS_GPU;
  at::manual_seed(55);
  const c10::impl::VirtualGuardImpl guard(gpu.type());
  const Case c{.what = "", .queries = 301, .keys = 301, .causal = true, .dropout = 0.1, .pairs = true, .scales = 1};
  for (const int64_t matrix : {0, 2, 4}) {
    if (const std::string missing = lacks(at::kBFloat16, 64, 8, 8, matrix > 0); !missing.empty()) SKIP(missing);
    const Inputs x = drawn(c, {2, 8, 8, 64, 64, matrix});
    const auto once = [&] { return results(x, at::kBFloat16, at::kBFloat16, gpu, by_kernel); };
    const Tensors first = once(), second = once();
    guard.synchronizeDevice(gpu.index());
    const c10::Stream before = guard.exchangeStream(guard.getStreamFromGlobalPool(gpu));
    const Tensors elsewhere = once();
    guard.synchronizeDevice(gpu.index());
    guard.exchangeStream(before);
    for (size_t i = 0; i < first.size(); ++i) {
      CHECK(at::equal(first[i], second[i]));
      CHECK(at::equal(first[i], elsewhere[i]));
    }
  }
}

TEST_CASE("mixed heads on a GPU take a 25th of the memory of composed operations", "[cuda-device]") {
  NEEDS_GPU;
  const int64_t heads = 8, n = 2048, size = 64;
  if (const std::string missing = lacks(at::kBFloat16, size, heads, heads, true); !missing.empty()) SKIP(missing);
  const Case c{.what = "", .queries = n, .keys = n, .causal = true};
  const Inputs x = drawn(c, {1, heads, heads, size, size, 2});
  auto& allocator = *c10::getDeviceAllocator(gpu.type());
  const c10::impl::VirtualGuardImpl guard(gpu.type());
  const at::Tensor dout = x.dout.to(gpu, at::kBFloat16);
  // Bytes that a call adds at its peak, besides the result and the gradients.
  const auto extra = [&](const auto& attend) {
    const auto bytes = [&] { return allocator.getDeviceStats(gpu.index()).allocated_bytes[0]; };
    int64_t more = 0;
    for (int i = 0; i < 2; ++i) {  // the first call may leave workspaces behind
      const Tensors leaves = leaves_of(x, at::kBFloat16, at::kBFloat16, gpu);
      guard.synchronizeDevice(gpu.index());
      allocator.resetPeakStats(gpu.index());
      const int64_t before = bytes().current;
      attend(x, leaves).backward(dout);
      more = bytes().peak - before;
    }
    return more - 4 * static_cast<int64_t>(dout.nbytes());
  };
  const int64_t mine = extra(by_kernel), theirs = extra(composed);
  INFO("bytes besides results: " << mine << ", composed " << theirs);
  CHECK(25 * mine <= theirs);
}
