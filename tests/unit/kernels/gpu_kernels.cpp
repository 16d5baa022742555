// The attention kernels on a GPU: `torch-tests --device cuda`. The error of the output and of every gradient is at most
// twice the error of the composed path in the same type on the GPU.
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
  int64_t matrix_dims = 0;  // dimensions of m; 0: no head mixing
};

struct Case {
  const char* name;
  int64_t queries, keys;
  bool causal = false;
  int64_t window = 0;
  bool key_lengths = false;  // random lengths; the first batch row has no real keys
  bool sigsoftmax = false;
  double dropout = 0;
  bool dropout_before_mixing = false;  // whether dropout acts before head mixing; false: after
  bool grouped = false;                // several query heads read the same key/value head
  int64_t scale_dims = 0;              // dimensions of the head scales; 0: no head scales
  bool relative = false;               // relative positions, with two runs of consecutive keys
};

const Case kCases[] = {
    {.name = "all keys", .queries = 77, .keys = 131},
    {.name = "one query", .queries = 1, .keys = 129},
    {.name = "one key", .queries = 33, .keys = 1},
    {.name = "causal", .queries = 131, .keys = 131, .causal = true},
    {.name = "causal, more keys than queries", .queries = 33, .keys = 151, .causal = true},
    {.name = "causal, one query", .queries = 1, .keys = 71, .causal = true},
    {.name = "window", .queries = 131, .keys = 161, .causal = true, .window = 17},
    {.name = "window of one key", .queries = 35, .keys = 35, .causal = true, .window = 1},
    {.name = "key lengths", .queries = 45, .keys = 77, .key_lengths = true},
    {.name = "Sigsoftmax", .queries = 67, .keys = 67, .causal = true, .sigsoftmax = true},
    {.name = "dropout", .queries = 65, .keys = 99, .dropout = 0.3},
    {.name = "dropout before mixing", .queries = 37, .keys = 99, .dropout = 0.3, .dropout_before_mixing = true},
    {.name = "grouped-query heads", .queries = 41, .keys = 71, .grouped = true},
    {.name = "head scales", .queries = 51, .keys = 91, .scale_dims = 1},
    {.name = "head scales per batch row", .queries = 51, .keys = 91, .key_lengths = true, .scale_dims = 2},
    {.name = "all options",
     .queries = 61,
     .keys = 93,
     .causal = true,
     .window = 29,
     .sigsoftmax = true,
     .dropout = 0.3,
     .grouped = true,
     .scale_dims = 2},
};

const Case kRelativeCases[] = {
    {.name = "relative, all keys", .queries = 77, .keys = 131, .relative = true},
    {.name = "relative, one query", .queries = 1, .keys = 71, .causal = true, .relative = true},
    {.name = "relative, causal", .queries = 33, .keys = 151, .causal = true, .relative = true},
    {.name = "relative, key lengths", .queries = 45, .keys = 77, .key_lengths = true, .relative = true},
    {.name = "relative, all options",
     .queries = 61,
     .keys = 93,
     .causal = true,
     .window = 29,
     .sigsoftmax = true,
     .dropout = 0.3,
     .grouped = true,
     .scale_dims = 2,
     .relative = true},
};

// Returns random operands and the options of a case.
Inputs random_inputs(const Case& c, const Sizes& sizes) {
  // Returns a random tensor (B, heads, length, size), stored as (B, length, heads, size) like a joint projection.
  const auto rows = [&](int64_t heads, int64_t length, int64_t size) {
    return at::randn({sizes.batch, length, heads, size}).transpose(1, 2);
  };
  const at::Tensor m = sizes.matrix_dims == 2   ? at::randn({sizes.in, sizes.out})
                       : sizes.matrix_dims == 3 ? at::randn({sizes.batch, sizes.in, sizes.out})
                       : sizes.matrix_dims == 4 ? at::randn({sizes.batch, c.queries, sizes.in, sizes.out})
                                                : at::Tensor();
  const at::Tensor scales = c.scale_dims == 1   ? at::randn({sizes.out})
                            : c.scale_dims == 2 ? at::randn({sizes.batch, sizes.out})
                                                : at::Tensor();
  Inputs x{{rows(sizes.in, c.queries, sizes.key_size),
            rows(sizes.in, c.keys, sizes.key_size),
            rows(sizes.out, c.keys, sizes.value_size),
            m,
            scales,
            {},
            {},
            {}},
           rows(sizes.out, c.queries, sizes.value_size),
           {c.causal, c.window},
           {}};
  if (c.key_lengths) {
    x.policy.key_lengths = at::randint(1, c.keys + 1, {sizes.batch}, at::kLong);
    x.policy.key_lengths[0] = 0;
  }
  if (c.sigsoftmax) x.policy.normaliser = kernels::Normaliser::sigsoftmax;
  if (c.dropout > 0) {
    const nn::ForwardContext forward_context{true, 7, 3, 2};
    const int64_t heads = c.dropout_before_mixing ? sizes.in : sizes.out;
    x.policy.dropout_before_mixing = c.dropout_before_mixing;
    x.policy.dropout = nn::dropout_range_of(heads * c.queries * c.keys, c.dropout, forward_context, "place", 1);
    x.dropout_mask =
        nn::dropout(at::ones({sizes.batch, heads, c.queries, c.keys}), c.dropout, forward_context, "place", 1);
  }
  if (c.relative) {
    const int64_t first = c.keys / 3, distances = c.queries + c.keys;
    x.policy.relative.runs = {{0, first, 0}, {first, c.keys - first, distances}};
    x.operands[kContentBias] = at::randn({sizes.in, sizes.key_size}),
    x.operands[kPositionBias] = at::randn({sizes.in, sizes.key_size});
    x.operands[kDistanceRows] = at::randn({sizes.in, 2 * distances, sizes.key_size});
  }
  if (c.grouped && sizes.in == sizes.out)
    for (int64_t h = 0; h < sizes.in; ++h) x.policy.key_heads.push_back(h * h % sizes.in);
  return x;
}

// Returns the output of the GPU kernels for the operands t of x.
at::Tensor attend_with_kernels(const Inputs& x, const Tensors& t) {
  AttentionSpec policy = x.policy;
  policy.head_scales = t[kHeadScales];
  policy.relative.u = t[kContentBias], policy.relative.v = t[kPositionBias], policy.relative.r = t[kDistanceRows];
  const attention::GpuKernels gpu = attention::gpu_kernels(t[kQ], t[kK], t[kV]);
  return t[kMatrix].defined() ? attention::head_mixing_gpu(gpu, t[kQ], t[kK], t[kV], t[kMatrix], policy)
                              : attention::fused_gpu(gpu, t[kQ], t[kK], t[kV], policy);
}

// Checks the output and gradients of a case against the reference equations.
void check(const Case& c, const Sizes& sizes, at::ScalarType type, at::Device gpu) {
  const Inputs x = random_inputs(c, sizes);
  INFO(c.name << ": batch " << sizes.batch << ", heads " << sizes.in << " and " << sizes.out << ", head sizes "
              << sizes.key_size << " and " << sizes.value_size << ", matrix of " << sizes.matrix_dims << " dimensions, "
              << c10::toString(type));
  Tensors actual;  // an exception fails this case only; the next cases still run
  try {
    actual = results(x, type, type, gpu, attend_with_kernels);
  } catch (const std::exception& exception) {
    FAIL_CHECK(exception.what());
    return;
  }
  Tensors magnitudes = term_magnitudes(x, type);
  if (type == at::kHalf && sizes.matrix_dims > 0)
    for (const size_t i : {size_t{0}, size_t{kV + 1}}) magnitudes[i] *= tolerance::kExchangedFp16;
  CHECK(numbers::find_excess_error(actual, results(x, type, type, gpu, composed),
                                   results(x, type, at::kDouble, at::kCPU, composed), type, magnitudes,
                                   type == at::kFloat ? logit_size(x, type) : 0) == "");
}

// Returns why this build has no kernels for these sizes, with head mixing if `head_mixing`; "" if it has kernels.
std::string no_kernels_reason(at::ScalarType type, int64_t size, int64_t in, int64_t out, bool head_mixing,
                              bool relative = false) {
  attention::LayerSpec spec;
  spec.heads = in, spec.value_heads = out, spec.key_size = spec.value_size = size;
  return attention::why_not_fused_on_gpu(type, spec, head_mixing, relative);
}

#define NEEDS_GPU                                           \
  if (test_device() != "cuda") SKIP("needs --device cuda"); \
  static const at::Device gpu = nn::choose_device("cuda")

constexpr int64_t kHeadSizes[] = {32, 35, 40, 64, 128};

}  // namespace

TEMPLATE_TEST_CASE("GPU attention matches the reference equations", "[cuda-device]", float, at::BFloat16, at::Half) {
  NEEDS_GPU;
  at::manual_seed(51);
  constexpr at::ScalarType type = c10::CppTypeToScalarType<TestType>::value;
  std::string missing_reason;
  for (const int64_t size : kHeadSizes) {
    if (missing_reason = no_kernels_reason(type, size, 3, 3, false); !missing_reason.empty()) break;
    for (const Case& c : kCases) check(c, {3, 3, 3, size, size}, type, gpu);
  }
  if (!missing_reason.empty()) SKIP(missing_reason);
}

TEMPLATE_TEST_CASE("GPU head mixing matches the reference equations", "[cuda-device]", float, at::BFloat16, at::Half) {
  NEEDS_GPU;
  at::manual_seed(52);
  constexpr at::ScalarType type = c10::CppTypeToScalarType<TestType>::value;
  std::string missing_reason;
  int64_t case_number = 0;  // varies the dimensions of the matrix between cases and sizes
  for (const int64_t size : kHeadSizes) {
    if (missing_reason = no_kernels_reason(type, size, 5, 5, true); !missing_reason.empty()) break;
    for (const Case& c : kCases) check(c, {2, 5, c.grouped ? 5 : 3, size, size, 2 + case_number++ % 3}, type, gpu);
    check(kCases[0], {2, 4, 4, size, size / 2, 2}, type, gpu);
    check(kCases[3], {2, 4, 4, size / 2, size, 4}, type, gpu);
  }
  if (!missing_reason.empty()) SKIP(missing_reason);
}

TEMPLATE_TEST_CASE("GPU attention and head mixing with relative positions match the reference equations",
                   "[cuda-device]", float, at::BFloat16, at::Half) {
  NEEDS_GPU;
  at::manual_seed(56);
  constexpr at::ScalarType type = c10::CppTypeToScalarType<TestType>::value;
  std::string missing_reason;
  int64_t case_number = 0;  // varies the dimensions of the matrix between cases and sizes
  for (const int64_t size : kHeadSizes) {
    if (missing_reason = no_kernels_reason(type, size, 3, 3, false, true); !missing_reason.empty()) break;
    if (missing_reason = no_kernels_reason(type, size, 5, 5, true, true); !missing_reason.empty()) break;
    for (const Case& c : kRelativeCases) {
      check(c, {2, 3, 3, size, size}, type, gpu);
      check(c, {2, 5, c.grouped ? 5 : 3, size, size, 2 + case_number++ % 3}, type, gpu);
    }
  }
  if (missing_reason = no_kernels_reason(type, 64, 32, 32, true, true); missing_reason.empty())
    check(kRelativeCases[2], {1, 32, 32, 64, 64, 4}, type, gpu);
  if (!missing_reason.empty()) SKIP(missing_reason);
}

TEMPLATE_TEST_CASE("GPU head mixing of 1 to 32 heads matches the reference equations", "[cuda-device]", float,
                   at::BFloat16, at::Half) {
  NEEDS_GPU;
  at::manual_seed(53);
  constexpr at::ScalarType type = c10::CppTypeToScalarType<TestType>::value;
  const Case cases[] = {{.name = "all keys", .queries = 35, .keys = 77},
                        {.name = "causal", .queries = 67, .keys = 67, .causal = true, .dropout = 0.3}};
  std::string missing_reason;
  for (const auto& [in, out] :
       {std::pair<int64_t, int64_t>{1, 1}, {1, 4}, {4, 1}, {8, 8}, {16, 16}, {12, 32}, {32, 32}}) {
    if (const std::string reason = no_kernels_reason(type, 64, in, out, true); !reason.empty()) {
      missing_reason = str(in, " and ", out, " heads: ", reason);
      continue;
    }
    for (const int64_t matrix_dims : {2, 4})
      for (const Case& c : cases) check(c, {2, in, out, 64, 64, matrix_dims}, type, gpu);
  }
  if (!missing_reason.empty()) SKIP(missing_reason);
}

// For compute-sanitizer, under which larger cases take too long.
TEST_CASE("each GPU attention kernel matches the reference equations on small inputs", "[cuda-device][small]") {
  NEEDS_GPU;
  at::manual_seed(54);
  const Case small_case{.name = "causal", .queries = 35, .keys = 71, .causal = true, .dropout = 0.3, .scale_dims = 2};
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kHalf}) {
    if (const std::string missing_reason = no_kernels_reason(type, 64, 3, 2, true); !missing_reason.empty())
      SKIP(missing_reason);
    check(small_case, {1, 2, 2, 64, 64}, type, gpu);
    for (const int64_t matrix_dims : {2, 4}) check(small_case, {1, 3, 2, 64, 64, matrix_dims}, type, gpu);
    Case relative_case = small_case;
    relative_case.relative = true;
    if (no_kernels_reason(type, 64, 3, 2, true, true).empty()) check(relative_case, {1, 3, 2, 64, 64, 2}, type, gpu);
  }
}

TEST_CASE("GPU attention is bit-identical when repeated and on another stream", "[cuda-device]") {
  NEEDS_GPU;
  at::manual_seed(55);
  const c10::impl::VirtualGuardImpl guard(gpu.type());
  const Case c{
      .name = "", .queries = 301, .keys = 301, .causal = true, .dropout = 0.1, .grouped = true, .scale_dims = 1};
  for (const int64_t matrix_dims : {0, 2, 4}) {
    if (const std::string missing_reason = no_kernels_reason(at::kBFloat16, 64, 8, 8, matrix_dims > 0);
        !missing_reason.empty())
      SKIP(missing_reason);
    const Inputs x = random_inputs(c, {2, 8, 8, 64, 64, matrix_dims});
    const auto run = [&] { return results(x, at::kBFloat16, at::kBFloat16, gpu, attend_with_kernels); };
    const Tensors first = run(), second = run();
    guard.synchronizeDevice(gpu.index());
    const c10::Stream default_stream = guard.exchangeStream(guard.getStreamFromGlobalPool(gpu));
    const Tensors on_other_stream = run();
    guard.synchronizeDevice(gpu.index());
    guard.exchangeStream(default_stream);
    for (size_t i = 0; i < first.size(); ++i) {
      CHECK(at::equal(first[i], second[i]));
      CHECK(at::equal(first[i], on_other_stream[i]));
    }
  }
}

TEST_CASE("GPU head mixing takes at most 1/25 of the memory of the composed path", "[cuda-device]") {
  NEEDS_GPU;
  const int64_t heads = 8, n = 2048, size = 64;
  if (const std::string missing_reason = no_kernels_reason(at::kBFloat16, size, heads, heads, true);
      !missing_reason.empty())
    SKIP(missing_reason);
  const Case c{.name = "", .queries = n, .keys = n, .causal = true};
  const Inputs x = random_inputs(c, {1, heads, heads, size, size, 2});
  auto& allocator = *c10::getDeviceAllocator(gpu.type());
  const c10::impl::VirtualGuardImpl guard(gpu.type());
  const at::Tensor dout = x.dout.to(gpu, at::kBFloat16);
  // Returns the peak memory of a call in bytes, without its result and gradients.
  const auto peak_bytes = [&](const auto& attend) {
    const auto allocated = [&] { return allocator.getDeviceStats(gpu.index()).allocated_bytes[0]; };
    int64_t peak = 0;
    for (int i = 0; i < 2; ++i) {  // the first call may allocate workspaces that stay allocated
      const Tensors leaves = leaves_of(x, at::kBFloat16, at::kBFloat16, gpu);
      guard.synchronizeDevice(gpu.index());
      allocator.resetPeakStats(gpu.index());
      const int64_t before = allocated().current;
      attend(x, leaves).backward(dout);
      peak = allocated().peak - before;
    }
    return peak - 4 * static_cast<int64_t>(dout.nbytes());
  };
  const int64_t fused_bytes = peak_bytes(attend_with_kernels), composed_bytes = peak_bytes(composed);
  INFO("peak bytes: kernels " << fused_bytes << ", composed path " << composed_bytes);
  CHECK(25 * fused_bytes <= composed_bytes);
}
