// The attention kernels on a GPU: `torch-tests --device cuda`. The bound on the error of the output and of every
// gradient is tolerance::composed_error_bound() of the composed path in the same type on the GPU; in fp32,
// tolerance::split_logit_error_bound() is added.
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
#include "oracle/spec_attention.h"

using namespace mh;
using namespace reference::spec;

namespace {

struct Sizes {
  int64_t batch, heads, value_heads, key_size, value_size;
  int64_t matrix_dims = 0;  // number of dimensions of m, 2 to 4; 0: no head mixing
};

struct Case {
  const char* name;
  int64_t queries, keys;
  bool causal = false;
  int64_t window = 0;
  bool has_key_lengths = false;  // random lengths; the first batch row has no real keys
  bool is_sigsoftmax = false;
  double dropout = 0;
  bool dropout_before_mixing = false;   // whether dropout acts before head mixing; false: after
  bool has_grouped_heads = false;       // several query heads read the same key/value head
  int64_t scale_dims = 0;               // number of dimensions of the head scales, 1 or 2; 0: no head scales
  bool has_relative_positions = false;  // relative positions; the keys are two KeyRanges, each with its own rows of r
  double soft_cap = 0;                  // 0: no soft cap
  bool has_sinks = false;
  bool has_position_bias = false;  // position bias; the keys are two KeyRanges, each with its own columns of biases
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
    {.name = "key lengths", .queries = 45, .keys = 77, .has_key_lengths = true},
    {.name = "Sigsoftmax", .queries = 67, .keys = 67, .causal = true, .is_sigsoftmax = true},
    {.name = "dropout", .queries = 65, .keys = 99, .dropout = 0.3},
    {.name = "dropout before mixing", .queries = 37, .keys = 99, .dropout = 0.3, .dropout_before_mixing = true},
    {.name = "grouped-query heads", .queries = 41, .keys = 71, .has_grouped_heads = true},
    {.name = "head scales", .queries = 51, .keys = 91, .scale_dims = 1},
    {.name = "head scales per batch row", .queries = 51, .keys = 91, .has_key_lengths = true, .scale_dims = 2},
    {.name = "all options",
     .queries = 61,
     .keys = 93,
     .causal = true,
     .window = 29,
     .is_sigsoftmax = true,
     .dropout = 0.3,
     .has_grouped_heads = true,
     .scale_dims = 2},
};

const Case kRelativeCases[] = {
    {.name = "relative, all keys", .queries = 77, .keys = 131, .has_relative_positions = true},
    {.name = "relative, one query", .queries = 1, .keys = 71, .causal = true, .has_relative_positions = true},
    {.name = "relative, causal", .queries = 33, .keys = 151, .causal = true, .has_relative_positions = true},
    {.name = "relative, key lengths",
     .queries = 45,
     .keys = 77,
     .has_key_lengths = true,
     .has_relative_positions = true},
    {.name = "relative, all options",
     .queries = 61,
     .keys = 93,
     .causal = true,
     .window = 29,
     .is_sigsoftmax = true,
     .dropout = 0.3,
     .has_grouped_heads = true,
     .scale_dims = 2,
     .has_relative_positions = true},
};

const Case kLogitTermCases[] = {
    {.name = "soft cap", .queries = 77, .keys = 131, .soft_cap = 3},
    {.name = "sinks", .queries = 131, .keys = 131, .causal = true, .has_sinks = true},
    {.name = "sinks, one query", .queries = 1, .keys = 301, .causal = true, .has_sinks = true},
    {.name = "position bias", .queries = 77, .keys = 131, .has_position_bias = true},
    {.name = "two-sided window", .queries = 131, .keys = 131, .window = 17},
    {.name = "two-sided window, more queries than keys", .queries = 131, .keys = 71, .window = 9, .has_sinks = true},
    {.name = "all logit terms, key lengths",
     .queries = 77,
     .keys = 91,
     .window = 29,
     .has_key_lengths = true,
     .soft_cap = 2,
     .has_sinks = true,
     .has_position_bias = true},
    {.name = "all logit terms, all options",
     .queries = 61,
     .keys = 93,
     .causal = true,
     .window = 29,
     .is_sigsoftmax = true,
     .dropout = 0.3,
     .has_grouped_heads = true,
     .scale_dims = 2,
     .soft_cap = 2,
     .has_sinks = true,
     .has_position_bias = true},
};

// Returns random operands and the options of a case.
Inputs random_inputs(const Case& c, const Sizes& sizes) {
  // Returns a random tensor (B, heads, length, size), stored as (B, length, heads, size) like the output of a
  // projection.
  const auto random_heads = [&](int64_t heads, int64_t length, int64_t size) {
    return at::randn({sizes.batch, length, heads, size}).transpose(1, 2);
  };
  const at::Tensor m = sizes.matrix_dims == 2   ? at::randn({sizes.heads, sizes.value_heads})
                       : sizes.matrix_dims == 3 ? at::randn({sizes.batch, sizes.heads, sizes.value_heads})
                       : sizes.matrix_dims == 4 ? at::randn({sizes.batch, c.queries, sizes.heads, sizes.value_heads})
                                                : at::Tensor();
  const at::Tensor scales = c.scale_dims == 1   ? at::randn({sizes.value_heads})
                            : c.scale_dims == 2 ? at::randn({sizes.batch, sizes.value_heads})
                                                : at::Tensor();
  Inputs x{{random_heads(sizes.heads, c.queries, sizes.key_size),
            random_heads(sizes.heads, c.keys, sizes.key_size),
            random_heads(sizes.value_heads, c.keys, sizes.value_size),
            m,
            scales,
            {},
            {},
            {}},
           random_heads(sizes.value_heads, c.queries, sizes.value_size),
           {c.causal, c.window},
           {}};
  if (c.has_key_lengths) {
    x.spec.key_lengths = at::randint(1, c.keys + 1, {sizes.batch}, at::kLong);
    x.spec.key_lengths[0] = 0;
  }
  if (c.is_sigsoftmax) x.spec.normaliser = kernels::Normaliser::sigsoftmax;
  if (c.dropout > 0) {
    const nn::ForwardContext forward_context{true, 7, 3, 2};
    const int64_t heads = c.dropout_before_mixing ? sizes.heads : sizes.value_heads;
    x.spec.dropout_before_mixing = c.dropout_before_mixing;
    x.dropout_mask =
        nn::dropout(at::ones({sizes.batch, heads, c.queries, c.keys}), c.dropout, forward_context, "place", 1);
    x.spec.dropout = nn::dropout_range_of(x.dropout_mask.sizes(), c.dropout, forward_context, "place", 1);
  }
  if (c.has_relative_positions) {
    const int64_t first_range_keys = c.keys / 3, num_distances = c.queries + c.keys;
    x.spec.relative_positions.key_ranges = {{0, first_range_keys, 0},
                                            {first_range_keys, c.keys - first_range_keys, num_distances}};
    x.operands[kContentBias] = at::randn({sizes.heads, sizes.key_size}),
    x.operands[kPositionBias] = at::randn({sizes.heads, sizes.key_size});
    x.operands[kDistanceRows] = at::randn({sizes.heads, 2 * num_distances, sizes.key_size});
  }
  x.operands.resize(kNumOperands);
  x.spec.soft_cap = c.soft_cap;
  if (c.has_sinks) x.operands[kSinks] = at::randn({sizes.heads});
  if (c.has_position_bias) {
    const int64_t first_range_keys = c.keys / 3, num_distances = c.queries + c.keys;
    x.spec.position_bias.key_ranges = {{0, first_range_keys, 0},
                                       {first_range_keys, c.keys - first_range_keys, num_distances}};
    x.operands[kDistanceBias] = at::randn({sizes.heads, 2 * num_distances});
  }
  if (c.has_grouped_heads && sizes.heads == sizes.value_heads)
    for (int64_t h = 0; h < sizes.heads; ++h) x.spec.kv_head_of.push_back(h * h % sizes.heads);
  return x;
}

// Returns the output (B, hv, Tq, dv) of the GPU kernels for the options of `x` and the operands `t` on the GPU.
at::Tensor attend_with_kernels(const Inputs& x, const Tensors& t) {
  AttentionSpec spec = x.spec;
  spec.head_scales = t[kHeadScales];
  spec.relative_positions.u = t[kContentBias], spec.relative_positions.v = t[kPositionBias],
  spec.relative_positions.r = t[kDistanceRows];
  spec.sinks = t[kSinks], spec.position_bias.bias = t[kDistanceBias];
  const attention::GpuKernels gpu = attention::gpu_kernels(t[kQ], t[kK], t[kV]);
  return t[kMatrix].defined() ? attention::head_mixing_gpu(gpu, t[kQ], t[kK], t[kV], t[kMatrix], spec)
                              : attention::fused_gpu(gpu, t[kQ], t[kK], t[kV], spec);
}

// Checks the output and gradients of a case against the reference equations.
void check_case(const Case& c, const Sizes& sizes, at::ScalarType type, at::Device gpu) {
  const Inputs x = random_inputs(c, sizes);
  INFO(c.name << ": batch " << sizes.batch << ", heads " << sizes.heads << " and " << sizes.value_heads
              << ", head sizes " << sizes.key_size << " and " << sizes.value_size << ", matrix of " << sizes.matrix_dims
              << " dimensions, " << c10::toString(type));
  Tensors actual;  // an exception fails this case only; the next cases still run
  try {
    actual = run_with_gradients(x, type, type, gpu, attend_with_kernels);
  } catch (const std::exception& exception) {
    FAIL_CHECK(exception.what());
    return;
  }
  Tensors magnitudes = term_magnitudes(x, type);
  if (type == at::kHalf && sizes.matrix_dims > 0)
    for (const size_t i : {size_t{0}, size_t{kV + 1}}) magnitudes[i] *= tolerance::kFp16ExchangeFactor;
  CHECK(numbers::find_excess_error(actual, run_with_gradients(x, type, type, gpu, composed_attention),
                                   run_with_gradients(x, type, at::kDouble, at::kCPU, composed_attention), type,
                                   magnitudes, type == at::kFloat ? logit_magnitude(x, type) : 0) == "");
}

// Returns why the kernels of this build cannot compute this type and these sizes on the current GPU; "" if they can.
// `has_head_mixing`, `has_relative_positions`: whether the attention has head mixing and relative positions.
std::string no_kernels_reason(at::ScalarType type, int64_t size, int64_t heads, int64_t value_heads,
                              bool has_head_mixing, bool has_relative_positions = false) {
  attention::LayerSpec spec;
  spec.heads = heads, spec.value_heads = value_heads, spec.key_size = spec.value_size = size;
  std::string reason = attention::why_no_gpu_type(type);
  if (reason.empty()) reason = attention::why_no_gpu_kernels(type, spec);
  if (!reason.empty()) return reason;
  if (has_head_mixing) return attention::why_no_gpu_head_mixing(type, spec, has_relative_positions);
  return has_relative_positions ? attention::why_no_gpu_relative_positions(type, spec) : "";
}

// Returns why attention without head mixing has no logit terms for this type and size on the current GPU; "" if it has.
std::string no_logit_terms_reason(at::ScalarType type, int64_t size, int64_t heads) {
  attention::LayerSpec spec;
  spec.heads = spec.value_heads = heads, spec.key_size = spec.value_size = size;
  const std::string reason = no_kernels_reason(type, size, heads, heads, false);
  return reason.empty() ? attention::why_no_gpu_logit_terms(type, spec, false, false) : reason;
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
    for (const Case& c : kCases) check_case(c, {3, 3, 3, size, size}, type, gpu);
  }
  if (!missing_reason.empty()) SKIP(missing_reason);
}

TEMPLATE_TEST_CASE("GPU attention with logit terms matches the reference equations", "[cuda-device]", float,
                   at::BFloat16, at::Half) {
  NEEDS_GPU;
  at::manual_seed(57);
  constexpr at::ScalarType type = c10::CppTypeToScalarType<TestType>::value;
  std::string missing_reason;
  for (const int64_t size : {40, 64}) {
    if (missing_reason = no_logit_terms_reason(type, size, 3); !missing_reason.empty()) break;
    for (const Case& c : kLogitTermCases) check_case(c, {3, 3, 3, size, size}, type, gpu);
  }
  if (!missing_reason.empty()) SKIP(missing_reason);
}

TEMPLATE_TEST_CASE("GPU head mixing matches the reference equations", "[cuda-device]", float, at::BFloat16, at::Half) {
  NEEDS_GPU;
  at::manual_seed(52);
  constexpr at::ScalarType type = c10::CppTypeToScalarType<TestType>::value;
  std::string missing_reason;
  int64_t case_number = 0;  // varies the number of dimensions of the matrix between cases and sizes
  for (const int64_t size : kHeadSizes) {
    if (missing_reason = no_kernels_reason(type, size, 5, 5, true); !missing_reason.empty()) break;
    for (const Case& c : kCases)
      check_case(c, {2, 5, c.has_grouped_heads ? 5 : 3, size, size, 2 + case_number++ % 3}, type, gpu);
    check_case(kCases[0], {2, 4, 4, size, size / 2, 2}, type, gpu);
    check_case(kCases[3], {2, 4, 4, size / 2, size, 4}, type, gpu);
  }
  if (!missing_reason.empty()) SKIP(missing_reason);
}

TEMPLATE_TEST_CASE("GPU attention and head mixing with relative positions match the reference equations",
                   "[cuda-device]", float, at::BFloat16, at::Half) {
  NEEDS_GPU;
  at::manual_seed(56);
  constexpr at::ScalarType type = c10::CppTypeToScalarType<TestType>::value;
  std::string missing_reason;
  int64_t case_number = 0;  // varies the number of dimensions of the matrix between cases and sizes
  for (const int64_t size : kHeadSizes) {
    if (missing_reason = no_kernels_reason(type, size, 3, 3, false, true); !missing_reason.empty()) break;
    if (missing_reason = no_kernels_reason(type, size, 5, 5, true, true); !missing_reason.empty()) break;
    for (const Case& c : kRelativeCases) {
      check_case(c, {2, 3, 3, size, size}, type, gpu);
      check_case(c, {2, 5, c.has_grouped_heads ? 5 : 3, size, size, 2 + case_number++ % 3}, type, gpu);
    }
  }
  if (missing_reason = no_kernels_reason(type, 64, 32, 32, true, true); missing_reason.empty())
    check_case(kRelativeCases[2], {1, 32, 32, 64, 64, 4}, type, gpu);
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
  for (const auto& [heads, value_heads] :
       {std::pair<int64_t, int64_t>{1, 1}, {1, 4}, {4, 1}, {8, 8}, {16, 16}, {12, 32}, {32, 32}}) {
    if (const std::string reason = no_kernels_reason(type, 64, heads, value_heads, true); !reason.empty()) {
      missing_reason = str(heads, " and ", value_heads, " heads: ", reason);
      continue;
    }
    for (const int64_t matrix_dims : {2, 4})
      for (const Case& c : cases) check_case(c, {2, heads, value_heads, 64, 64, matrix_dims}, type, gpu);
  }
  if (!missing_reason.empty()) SKIP(missing_reason);
}

// A test case for compute-sanitizer, under which larger cases take too long.
TEST_CASE("each GPU attention kernel matches the reference equations on small inputs", "[cuda-device][small]") {
  NEEDS_GPU;
  at::manual_seed(54);
  const Case small_case{.name = "causal", .queries = 35, .keys = 71, .causal = true, .dropout = 0.3, .scale_dims = 2};
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kHalf}) {
    if (const std::string missing_reason = no_kernels_reason(type, 64, 3, 2, true); !missing_reason.empty())
      SKIP(missing_reason);
    check_case(small_case, {1, 2, 2, 64, 64}, type, gpu);
    for (const int64_t matrix_dims : {2, 4}) check_case(small_case, {1, 3, 2, 64, 64, matrix_dims}, type, gpu);
    Case relative_case = small_case;
    relative_case.has_relative_positions = true;
    if (no_kernels_reason(type, 64, 3, 2, true, true).empty())
      check_case(relative_case, {1, 3, 2, 64, 64, 2}, type, gpu);
    Case logit_term_case = small_case;
    logit_term_case.soft_cap = 2, logit_term_case.has_sinks = logit_term_case.has_position_bias = true;
    if (no_logit_terms_reason(type, 64, 2).empty()) check_case(logit_term_case, {1, 2, 2, 64, 64}, type, gpu);
  }
}

TEST_CASE("GPU attention is bit-identical when repeated and on another stream", "[cuda-device]") {
  NEEDS_GPU;
  at::manual_seed(55);
  const c10::impl::VirtualGuardImpl guard(gpu.type());
  const Case c{.name = "",
               .queries = 301,
               .keys = 301,
               .causal = true,
               .dropout = 0.1,
               .has_grouped_heads = true,
               .scale_dims = 1};
  for (const int64_t matrix_dims : {0, 2, 4}) {
    if (const std::string missing_reason = no_kernels_reason(at::kBFloat16, 64, 8, 8, matrix_dims > 0);
        !missing_reason.empty())
      SKIP(missing_reason);
    const Inputs x = random_inputs(c, {2, 8, 8, 64, 64, matrix_dims});
    const auto run = [&] { return run_with_gradients(x, at::kBFloat16, at::kBFloat16, gpu, attend_with_kernels); };
    const Tensors first_results = run(), second_results = run();
    guard.synchronizeDevice(gpu.index());
    const c10::Stream default_stream = guard.exchangeStream(guard.getStreamFromGlobalPool(gpu));
    const Tensors other_stream_results = run();
    guard.synchronizeDevice(gpu.index());
    guard.exchangeStream(default_stream);
    for (size_t i = 0; i < first_results.size(); ++i) {
      CHECK(at::equal(first_results[i], second_results[i]));
      CHECK(at::equal(first_results[i], other_stream_results[i]));
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
  // Returns the peak memory, in bytes, of a call of `attend` and its backward pass, without the output and the
  // gradients of q, k and v.
  const auto peak_bytes = [&](const auto& attend) {
    const auto allocated_bytes = [&] { return allocator.getDeviceStats(gpu.index()).allocated_bytes[0]; };
    int64_t peak = 0;
    for (int i = 0; i < 2; ++i) {  // the first call may allocate workspaces that stay allocated
      const Tensors leaves = leaves_of(x, at::kBFloat16, at::kBFloat16, gpu);
      guard.synchronizeDevice(gpu.index());
      allocator.resetPeakStats(gpu.index());
      const int64_t initial_bytes = allocated_bytes().current;
      attend(x, leaves).backward(dout);
      peak = allocated_bytes().peak - initial_bytes;
    }
    return peak - 4 * static_cast<int64_t>(dout.nbytes());
  };
  const int64_t fused_bytes = peak_bytes(attend_with_kernels), composed_bytes = peak_bytes(composed_attention);
  INFO("peak bytes: kernels " << fused_bytes << ", composed path " << composed_bytes);
  CHECK(25 * fused_bytes <= composed_bytes);
}
