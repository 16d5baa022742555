// GPU attention kernels with head mixing, run in the emulator and compared with naive loops in double precision.
#include <catch2/catch.hpp>

#include "emulator/cuda_cases.h"
#include "emulator/host_launcher.h"
#include "fixtures/reduced_cases.h"

using namespace mh::kernels;
using namespace cuda_cases;

namespace {

// Returns the error text of a launch, or "" for null, which RapidCheck cannot print.
std::string text_of(const char* problem) { return problem == nullptr ? "" : problem; }

// Returns the plans of all kernels with a HeadMixingPlan for `max_shared_bytes` bytes of shared memory. The row-mix
// kernels have plans of another type (RowMixPlan).
template <class T, int kSize, bool kRelative>
std::vector<HeadMixingPlan> plans_of(const AttentionParams& params, int max_shared_bytes) {
  constexpr bool kSeparatePasses = kSeparateKeyValuePasses<T, kSize>;
  constexpr ResidentRows kResident = kRelative ? ResidentRows::keys_of_range : ResidentRows::keys;
  std::vector<HeadMixingPlan> all_plans{
      HeadMixingForwardTiles<T, kSize, kRelative>::plan(params, max_shared_bytes),
      HeadMixingMatrixGradientTiles<T, kSize, kRelative>::plan(params, max_shared_bytes),
      HeadMixingQueryGradientTiles<T, kSize, kRelative>::plan(params, max_shared_bytes),
      HeadMixingKeyGradientTiles<T, kSize, !kSeparatePasses, true, kResident>::plan(params, max_shared_bytes),
      HeadMixingKeyGradientTiles<T, kSize, true, !kSeparatePasses, kResident>::plan(params, max_shared_bytes)};
  if (kRelative)
    all_plans.push_back(
        HeadMixingKeyGradientTiles<T, kSize, true, false, ResidentRows::distances>::plan(params, max_shared_bytes));
  return all_plans;
}
template <class T, int kSize>
std::vector<HeadMixingPlan> plans(const AttentionParams& params, int max_shared_bytes, bool has_relative_positions) {
  return has_relative_positions ? plans_of<T, kSize, true>(params, max_shared_bytes)
                                : plans_of<T, kSize, false>(params, max_shared_bytes);
}

// Plans tiles for `plan_limit` bytes of shared memory, usually fewer than a launch may use, so that small cases are
// tiled like large ones.
struct LimitedLauncher : host::Launcher {
  int plan_limit;
  int max_shared_memory() const { return plan_limit; }
};

// Returns the minimum shared memory, in KiB, for which all plans of plans() fit (num_stages > 0).
template <class T, int kSize>
int min_shared_kib(const AttentionParams& params, bool has_relative_positions) {
  for (int kib = 1;; ++kib) {
    const auto all_plans = plans<T, kSize>(params, kib << 10, has_relative_positions);
    if (std::all_of(all_plans.begin(), all_plans.end(), [](const HeadMixingPlan& plan) { return plan.num_stages > 0; }))
      return kib;
  }
}

// Returns x plus a bias (heads, size), rounded to T.
template <class T>
Tensor<T> add_bias(const Tensor<T>& x, const std::vector<float>& bias) {
  Tensor<T> sum = x;
  const StridedTensor<T> view = sum.view();
  for (int64_t b = 0; b < x.batch; ++b)
    for (int64_t h = 0; h < x.heads; ++h)
      for (int64_t t = 0; t < x.length; ++t)
        for (int64_t e = 0; e < x.size; ++e) {
          T& element = view.data[b * view.batch_stride + h * view.head_stride + t * view.row_stride + e];
          element = from_double<T>(to_double(element) + static_cast<double>(bias[static_cast<size_t>(h * x.size + e)]));
        }
  return sum;
}

// Returns the sums of x (batch, heads, n, size) over the batch and n, (heads, size).
Doubles sum_per_head(const Doubles& x, int64_t batch, int64_t heads, int64_t size) {
  Doubles sums(static_cast<size_t>(heads * size));
  const auto num_head_elements = static_cast<int64_t>(x.size()) / std::max<int64_t>(1, batch * heads);
  for (int64_t i = 0; i < static_cast<int64_t>(x.size()); ++i)
    sums[static_cast<size_t>(i / num_head_elements % heads * size + i % size)] += x[static_cast<size_t>(i)];
  return sums;
}

// Returns the sums of x (batch, count, size) over `count`, (batch, size).
Doubles sum_per_batch_row(const Doubles& x, int64_t batch, int64_t count, int64_t size) {
  Doubles sums(static_cast<size_t>(batch * size));
  for (int64_t i = 0; i < static_cast<int64_t>(x.size()); ++i)
    sums[static_cast<size_t>(i / (count * size) * size + i % size)] += x[static_cast<size_t>(i)];
  return sums;
}

// Checks all results of a random case. If `uses_all_memory`, tiles are planned for 227 KiB of shared memory, as on an
// H100; the row-mix kernels then serve cases with few heads, a 16-bit type and no relative positions. Otherwise the
// limit of shared memory is random, from the minimum to 227 KiB, or it is the minimum if `kind` is CaseKind::lengths.
template <class T, int kSize>
void check_case(int64_t max_heads, int64_t max_length, bool has_relative_positions = false,
                CaseKind kind = CaseKind::any, bool uses_all_memory = false) {
  Case test_case(pick(1, max_heads), pick(1, max_heads), max_length, kSize, false, kind);
  reference::OracleCase& c = test_case.oracle_case;
  const bool is_position_major = pick(0, 1) == 1;
  std::mt19937 random(static_cast<uint32_t>(pick(0, 1 << 20)));
  Tensor<T> r(1, 0, 0, 0, is_position_major);
  if (has_relative_positions) test_case.add_relative_positions(r, random);
  AttentionParams params = test_case.params;
  params.heads = static_cast<int>(c.heads), params.dropout_before_mixing = c.dropout_before_mixing;
  // The head mixing kernels have no head scales: callers multiply the scales into the matrix.
  c.head_scales.clear(), c.params.head_scales = params.head_scales = nullptr;
  std::normal_distribution<float> normal;
  const bool has_matrix_per_query = pick(0, 1) == 1, has_matrix_per_row = has_matrix_per_query || pick(0, 1) == 1;
  const int64_t matrix_size = c.heads * c.value_heads;
  std::vector<float> matrix(static_cast<size_t>((has_matrix_per_row ? c.batch : 1) *
                                                (has_matrix_per_query ? params.queries : 1) * matrix_size));
  // The matrix may have any magnitude, since the kernels scale it to the range of fp16. For fp16 results the magnitude
  // is 1, since results of the other magnitudes would overflow or underflow in fp16.
  const float magnitude =
      std::is_same_v<T, Fp16> ? 1.0F : std::vector<float>{1, 1e-6F, 1e5F}[static_cast<size_t>(pick(0, 2))];
  for (float& x : matrix) x = magnitude * normal(random);
  std::vector<float> transposed_matrix = matrix;
  for (size_t i = 0; i < matrix.size(); ++i) {
    const auto entry = static_cast<int64_t>(i) % matrix_size;
    transposed_matrix[i - static_cast<size_t>(entry) +
                      static_cast<size_t>(entry % c.value_heads * c.heads + entry / c.value_heads)] = matrix[i];
  }
  params.mixing_matrix = matrix.data(), params.mixing_matrix_transposed = transposed_matrix.data(),
  params.matrix_query_stride = has_matrix_per_query ? matrix_size : 0;
  params.matrix_batch_stride = has_matrix_per_query ? params.queries * matrix_size
                               : has_matrix_per_row ? matrix_size
                                                    : 0;
  for (int64_t b = 0; b < c.batch; ++b)
    for (int64_t t = 0; t < params.queries; ++t)
      for (int64_t i = 0; i < matrix_size; ++i)
        c.matrix.push_back(
            matrix[static_cast<size_t>(b * params.matrix_batch_stride + t * params.matrix_query_stride + i)]);
  Tensor<T> q(c.batch, c.heads, params.queries, c.key_size, is_position_major),
      k(c.batch, c.k_heads, params.keys, c.key_size, is_position_major),
      v(c.batch, c.v_heads, params.keys, c.value_size, is_position_major),
      dout(c.batch, c.value_heads, params.queries, c.value_size, is_position_major);
  for (auto* t : {&q, &k, &v, &dout}) t->fill(random, 1);
  params.has_aligned_rows = c.key_size % 8 == 0 && c.value_size % 8 == 0;
  Tensor<T> q_u = q, q_v = q;
  if (has_relative_positions) q_u = add_bias(q, test_case.u), q_v = add_bias(q, test_case.v_bias);
  Tensor<T> out = dout, dq = q, dq_v = q, dk(c.batch, c.heads, params.keys, c.key_size, is_position_major),
            dv(c.batch, c.value_heads, params.keys, c.value_size, is_position_major);
  const auto nan_buffer = [](int64_t size) { return std::vector<float>(static_cast<size_t>(size), NAN); };
  std::vector<float> lse = nan_buffer(c.batch * c.heads * params.queries), prob_sums = lse, dm,
                     dr = nan_buffer(c.batch * c.heads * c.num_distances * c.key_size);
  host::EmulatedGpu device(static_cast<uint32_t>(pick(0, 5)));
  using Launches = AttentionLaunches<T, kSize>;
  // The limit of shared memory determines the number of heads in a pipeline stage and the number of stages, up to 4.
  const int min_kib = min_shared_kib<T, kSize>(params, has_relative_positions);
  const int64_t max_kib = kind == CaseKind::lengths ? min_kib : pick(0, 2) > 0 ? 2 * min_kib : 227;
  const LimitedLauncher launcher{{device, 227 << 10},
                                 (uses_all_memory ? 227 : static_cast<int>(pick(min_kib, max_kib))) << 10};
  const int64_t num_gradients = Launches::head_mixing_num_matrix_gradients(launcher, params);
  dm = nan_buffer(c.batch * num_gradients * matrix_size);
  AttentionTensors tensors;
  tensors.batch = c.batch, tensors.q = q.untyped_view(), tensors.k = k.untyped_view(), tensors.v = v.untyped_view(),
  tensors.out = out.untyped_view(), tensors.dout = dout.untyped_view();
  tensors.dq = dq.untyped_view(), tensors.dk = dk.untyped_view(), tensors.dv = dv.untyped_view(),
  tensors.has_one_reader_per_kv_head = false;
  std::vector<QueryStats> query_stats(lse.size() + kStatsPadding, QueryStats{NAN, NAN, NAN, NAN});
  tensors.query_stats = query_stats.data();
  tensors.lse = lse.data(), tensors.prob_sums = prob_sums.data(), tensors.dm = dm.data();
  if (has_relative_positions) {
    tensors.q_u = q_u.untyped_view(), tensors.q_v = q_v.untyped_view();
    tensors.dq_v = dq_v.untyped_view(), tensors.dr = dr.data();
  }
  // num_splits may exceed the number of keys.
  tensors.num_splits = !has_relative_positions && pick(0, 1) == 1 ? 1 << pick(1, 2) : 1;
  std::vector<float> partial_out =
      nan_buffer(tensors.num_splits > 1 ? c.batch * params.queries * tensors.num_splits *
                                              std::max(2 * c.heads, c.value_heads * c.value_size)
                                        : 0);
  tensors.partial_out = partial_out.data();
  RC_ASSERT(text_of(Launches::head_mixing_forward(launcher, params, tensors)) == "");
  RC_ASSERT(text_of(Launches::head_mixing_backward(launcher, params, tensors)) == "");

  const auto round = [](double x) { return to_double(from_double<T>(x)); };
  c.round_biased_query = round;
  const auto exact_results = reference::attention(c, q.to_doubles(), k.to_doubles(), v.to_doubles(), dout.to_doubles());
  c.round = round;
  const auto composed_results =
      reference::attention(c, q.to_doubles(), k.to_doubles(), v.to_doubles(), dout.to_doubles());
  const ExpectClose<T> expect_close{exact_results.logit_magnitude};
  expect_close("lse", Doubles(lse.begin(), lse.end()), exact_results.lse, composed_results.lse,
               exact_results.lse_magnitude);
  // Returns the magnitudes, increased for fp16 to allow for the additional rounding of the probabilities that warps
  // exchange in fp16.
  const auto add_exchange_rounding = [](Doubles magnitudes) {
    for (double& x : magnitudes) x *= std::is_same_v<T, Fp16> ? tolerance::kFp16ExchangeFactor : 1;
    return magnitudes;
  };
  expect_close("out", out.to_doubles(), exact_results.out, composed_results.out,
               add_exchange_rounding(exact_results.out_magnitude));
  // Returns the sums of partial gradients x (batch, count, heads, value_heads) over `count`, or x if every query has a
  // gradient of its own.
  const auto sum_of_matrices = [&](const Doubles& x, int64_t count) {
    return num_gradients == params.queries ? x : sum_per_batch_row(x, c.batch, count, matrix_size);
  };
  expect_close("dm", sum_of_matrices(Doubles(dm.begin(), dm.end()), num_gradients),
               sum_of_matrices(exact_results.dm, params.queries), sum_of_matrices(composed_results.dm, params.queries),
               sum_of_matrices(exact_results.dm_magnitude, params.queries));
  Doubles dq_sum = dq.to_doubles();
  if (has_relative_positions) {
    const Doubles dq_v_values = dq_v.to_doubles();
    expect_close("du", sum_per_head(dq_sum, c.batch, c.heads, c.key_size), exact_results.du, composed_results.du,
                 exact_results.du_magnitude);
    expect_close("dv_bias", sum_per_head(dq_v_values, c.batch, c.heads, c.key_size), exact_results.dv_bias,
                 composed_results.dv_bias, exact_results.dv_bias_magnitude);
    expect_close("dr", sum_per_head(Doubles(dr.begin(), dr.end()), c.batch, c.heads, c.num_distances * c.key_size),
                 exact_results.dr, composed_results.dr, exact_results.dr_magnitude);
    for (size_t i = 0; i < dq_sum.size(); ++i) dq_sum[i] += dq_v_values[i];
  }
  expect_close("dq", dq_sum, exact_results.dq, composed_results.dq, exact_results.dq_magnitude);
  expect_close("dk", dk.to_doubles(), exact_results.dk, composed_results.dk, exact_results.dk_magnitude);
  expect_close("dv", dv.to_doubles(), exact_results.dv, composed_results.dv,
               add_exchange_rounding(exact_results.dv_magnitude));
}

// Returns, as text, the first pair of numbers of heads and value heads, each up to 32, without a valid plan for
// `max_shared_bytes` bytes of shared memory; "" if there is none.
template <class T, int kSize>
std::string find_invalid_plan(int max_shared_bytes, bool has_relative_positions = false) {
  for (int heads = 1; heads <= 32; ++heads)
    for (int value_heads = 1; value_heads <= 32; ++value_heads) {
      AttentionParams params;
      params.heads = heads, params.value_heads = value_heads;
      for (const HeadMixingPlan& plan : plans<T, kSize>(params, max_shared_bytes, has_relative_positions))
        if (plan.num_stages < 1 || plan.heads_per_stage < 1 || plan.num_concurrent_stores < 1 ||
            plan.shared_bytes > max_shared_bytes || plan.threads() > kHeadMixingThreads)
          return std::to_string(heads) + " and " + std::to_string(value_heads) + " heads of size " +
                 std::to_string(kSize);
    }
  return "";
}

}  // namespace

TEST_CASE("emulated GPU head mixing matches the reference equations over random cases", "[cuda]") {
  CHECK(check_reduced("fp32", [] { check_case<float, 32>(6, 60); }));
  CHECK(check_reduced("bf16", [] { check_case<Bf16, 64>(9, 60); }));
  CHECK(check_reduced("fp32, windows", [] { check_case<float, 16>(2, 80, false, CaseKind::windows); }));
  CHECK(check_reduced("bf16, few real keys", [] { check_case<Bf16, 16>(4, 80, false, CaseKind::lengths); }));
  // If the limit of shared memory is low, the warps store their results through shared memory in several rounds.
  CHECK(check_reduced("fp32, head size 96", [] { check_case<float, 96>(8, 5); }));
  CHECK(check_reduced("fp16, many heads", [] { check_case<Fp16, 16>(32, 20); }));
  // dQ is computed in two column blocks, dK and dV in separate passes.
  CHECK(check_reduced("fp32, head size 256", [] { check_case<float, 256>(5, 8); }));
}

TEST_CASE("emulated GPU head mixing query by query matches the reference equations over random cases", "[cuda]") {
  const auto any = CaseKind::any;
  CHECK(check_reduced("up to 4 heads", [=] { check_case<Bf16, 64>(4, 90, false, any, true); }));
  CHECK(check_reduced("up to 8 heads", [=] { check_case<Bf16, 64>(8, 90, false, any, true); }));
  CHECK(check_reduced("up to 16 heads", [=] { check_case<Bf16, 16>(16, 60, false, any, true); }));
  CHECK(check_reduced("windows", [] { check_case<Bf16, 16>(3, 90, false, CaseKind::windows, true); }));
  CHECK(check_reduced("few real keys", [] { check_case<Fp16, 16>(8, 90, false, CaseKind::lengths, true); }));
  CHECK(check_reduced("head size 128", [=] { check_case<Bf16, 128>(8, 40, false, any, true); }));
}

TEST_CASE("emulated GPU head mixing with relative positions over several key ranges matches the reference equations",
          "[cuda]") {
  CHECK(check_reduced("fp32", [] { check_case<float, 32>(4, 50, true); }));
  CHECK(check_reduced("bf16", [] { check_case<Bf16, 64>(6, 50, true); }));
  CHECK(check_reduced("fp32, windows", [] { check_case<float, 16>(2, 80, true, CaseKind::windows); }));
  // dQ is computed in two column blocks, dK and dV in separate passes.
  CHECK(check_reduced("fp32, head size 192", [] { check_case<float, 192>(4, 5, true); }));
  CHECK(check_reduced("fp16, many heads", [] { check_case<Fp16, 16>(32, 16, true); }));
}

TEST_CASE("head mixing refuses soft caps, sinks, position biases and two-sided windows", "[cuda]") {
  host::EmulatedGpu device;
  const host::Launcher launcher{device};
  const float zero = 0;
  AttentionParams with_soft_cap, with_sinks, with_bias, with_window;
  with_soft_cap.soft_cap = 1, with_sinks.sinks = &zero, with_bias.position_bias.bias = &zero, with_window.window = 1;
  using Launches = AttentionLaunches<Bf16, 64>;
  for (const AttentionParams& params : {with_soft_cap, with_sinks, with_bias, with_window}) {
    CHECK_THAT(text_of(Launches::head_mixing_forward(launcher, params, {})), Catch::EndsWith("with head mixing"));
    CHECK_THAT(text_of(Launches::head_mixing_backward(launcher, params, {})), Catch::EndsWith("with head mixing"));
  }
}

TEST_CASE("head mixing of up to 32 heads of size up to 256 fits into the shared memory of every GPU", "[cuda]") {
  for (const int max_shared_bytes : {99 << 10, 163 << 10, 227 << 10}) {
    INFO(max_shared_bytes);
    CHECK(find_invalid_plan<float, 16>(max_shared_bytes) == "");
    CHECK(find_invalid_plan<float, 64>(max_shared_bytes) == "");
    CHECK(find_invalid_plan<float, 128>(max_shared_bytes) == "");
    CHECK(find_invalid_plan<float, 256>(max_shared_bytes) == "");
    CHECK(find_invalid_plan<Bf16, 64>(max_shared_bytes) == "");
    CHECK(find_invalid_plan<Bf16, 128>(max_shared_bytes) == "");
    CHECK(find_invalid_plan<Fp16, 192>(max_shared_bytes) == "");
    CHECK(find_invalid_plan<Fp16, 256>(max_shared_bytes) == "");
  }
  for (const int max_shared_bytes : {163 << 10, 227 << 10}) {  // A100 and H100
    INFO(max_shared_bytes);
    CHECK(find_invalid_plan<float, 64>(max_shared_bytes, true) == "");
    CHECK(find_invalid_plan<float, 256>(max_shared_bytes, true) == "");
    CHECK(find_invalid_plan<Bf16, 64>(max_shared_bytes, true) == "");
    CHECK(find_invalid_plan<Fp16, 256>(max_shared_bytes, true) == "");
  }
  host::EmulatedGpu device;
  const host::Launcher ampere_launcher{device, 163 << 10};
  CHECK(text_of(AttentionLaunches<float, 256>::head_mixing_constraint(ampere_launcher, 32, 32, false)) == "");
  CHECK(
      text_of(AttentionLaunches<float, 256>::head_mixing_constraint(host::Launcher{device, 48 << 10}, 32, 32, false)) ==
      "head counts or head sizes whose tiles exceed the shared memory of a block");
}
