// The kernels of a GPU for mixed heads, thread by thread on the CPU, against loops in double.
#include <catch2/catch.hpp>

#include "emulator/cuda_cases.h"
#include "emulator/host_launcher.h"
#include "fixtures/reduced_cases.h"

using namespace mh::kernels;
using namespace cuda_cases;

namespace {

// What went wrong, or nothing; RapidCheck cannot print a null string.
std::string said(const char* problem) { return problem == nullptr ? "" : problem; }

// Of all kernels.
template <class T, int kSize, bool kRelative>
std::vector<HeadMixingPlan> plans_of(const AttentionParams& a, int limit) {
  constexpr bool kSeparatePasses = kSeparateKeyValuePasses<T, kSize>;
  constexpr ResidentRows kResident = kRelative ? ResidentRows::keys_of_run : ResidentRows::keys;
  std::vector<HeadMixingPlan> all{
      HeadMixingForwardTiles<T, kSize, kRelative>::plan(a, limit),
      HeadMixingSumsTiles<T, kSize, kRelative>::plan(a, limit),
      HeadMixingQueryGradientTiles<T, kSize, kRelative>::plan(a, limit),
      HeadMixingKeyGradientTiles<T, kSize, !kSeparatePasses, true, kResident>::plan(a, limit),
      HeadMixingKeyGradientTiles<T, kSize, true, !kSeparatePasses, kResident>::plan(a, limit)};
  if (kRelative)
    all.push_back(HeadMixingKeyGradientTiles<T, kSize, true, false, ResidentRows::distances>::plan(a, limit));
  return all;
}
template <class T, int kSize>
std::vector<HeadMixingPlan> plans(const AttentionParams& a, int limit, bool relative) {
  return relative ? plans_of<T, kSize, true>(a, limit) : plans_of<T, kSize, false>(a, limit);
}

// Plans are made for less shared memory than there is, so that blocks of few rows are made up as those of many.
struct Cramped : host::Launcher {
  int planned;
  int max_shared_memory() const { return planned; }
};

// KiB of it for which there are plans.
template <class T, int kSize>
int least_memory(const AttentionParams& a, bool relative) {
  for (int least = 1;; ++least) {
    const auto all = plans<T, kSize>(a, least << 10, relative);
    if (std::all_of(all.begin(), all.end(), [](const HeadMixingPlan& plan) { return plan.num_stages > 0; }))
      return least;
  }
}

// x and a bias (heads, size), rounded.
template <class T>
Tensor<T> biased(const Tensor<T>& x, const std::vector<float>& bias) {
  Tensor<T> sum = x;
  const Rows<T> rows = sum.write();
  for (int64_t b = 0; b < x.batch; ++b)
    for (int64_t h = 0; h < x.heads; ++h)
      for (int64_t t = 0; t < x.length; ++t)
        for (int64_t e = 0; e < x.size; ++e) {
          T& number = rows.data[b * rows.batch_stride + h * rows.head_stride + t * rows.row_stride + e];
          number = from_double<T>(to_double(number) + static_cast<double>(bias[static_cast<size_t>(h * x.size + e)]));
        }
  return sum;
}

// (batch, heads, length, size) summed over rows and positions: (heads, size). `kept` numbers are (heads, kept) behind
// the rows, over which alone is summed.
Doubles summed(const Doubles& x, int64_t batch, int64_t heads, int64_t kept) {
  Doubles sums(static_cast<size_t>(heads * kept));
  const auto of_head = static_cast<int64_t>(x.size()) / std::max<int64_t>(1, batch * heads);
  for (int64_t i = 0; i < static_cast<int64_t>(x.size()); ++i)
    sums[static_cast<size_t>(i / of_head % heads * kept + i % kept)] += x[static_cast<size_t>(i)];
  return sums;
}

// (batch, count, numbers) summed over the second: (batch, numbers).
Doubles summed_rows(const Doubles& x, int64_t batch, int64_t count, int64_t numbers) {
  Doubles sums(static_cast<size_t>(batch * numbers));
  for (int64_t i = 0; i < static_cast<int64_t>(x.size()); ++i)
    sums[static_cast<size_t>(i / (count * numbers) * numbers + i % numbers)] += x[static_cast<size_t>(i)];
  return sums;
}

// With from as much memory as is needed at least to as much as is enough for all; all_memory: with as much as an H100
// has, with which heads of 16-bit types are mixed query by query.
template <class T, int kSize>
void check_case(int64_t most_heads, int64_t max_length, bool relative = false, CaseKind kind = CaseKind::any,
                bool all_memory = false) {
  Case z(pick(1, most_heads), pick(1, most_heads), max_length, kSize, false, kind);
  reference::PolicyCase& c = z.policy_case;
  const bool by_position = pick(0, 1) == 1;
  std::mt19937 random(static_cast<uint32_t>(pick(0, 1 << 20)));
  Tensor<T> r(1, 0, 0, 0, by_position);
  if (relative) z.add_positions(r, random);
  AttentionParams a = z.params;
  a.in_heads = static_cast<int>(c.in), a.dropout_before_mixing = c.dropped_first;
  a.dropout_heads = static_cast<int>(c.dropped_first ? c.in : c.out);
  // Scales of heads are part of the matrix.
  c.scales.clear(), c.policy.head_scales = a.head_scales = nullptr;
  std::normal_distribution<float> normal;
  const bool by_query = pick(0, 1) == 1, by_row = by_query || pick(0, 1) == 1;
  const int64_t numbers = c.in * c.out;
  std::vector<float> matrix(static_cast<size_t>((by_row ? c.batch : 1) * (by_query ? a.queries : 1) * numbers));
  // Of any size: the tensor cores round its numbers, which fp16 has place for by their largest alone.
  const float spread =
      std::is_same_v<T, Fp16> ? 1.0F : std::vector<float>{1, 1e-6F, 1e5F}[static_cast<size_t>(pick(0, 2))];
  for (float& x : matrix) x = spread * normal(random);
  std::vector<float> turned = matrix;
  for (size_t i = 0; i < matrix.size(); ++i) {
    const auto at = static_cast<int64_t>(i) % numbers;
    turned[i - static_cast<size_t>(at) + static_cast<size_t>(at % c.out * c.in + at / c.out)] = matrix[i];
  }
  a.matrix = matrix.data(), a.matrix_transposed = turned.data(), a.matrix_query_stride = by_query ? numbers : 0;
  a.matrix_batch_stride = by_query ? a.queries * numbers : by_row ? numbers : 0;
  for (int64_t b = 0; b < c.batch; ++b)
    for (int64_t t = 0; t < a.queries; ++t)
      for (int64_t i = 0; i < numbers; ++i)
        c.matrix.push_back(matrix[static_cast<size_t>(b * a.matrix_batch_stride + t * a.matrix_query_stride + i)]);
  Tensor<T> q(c.batch, c.in, a.queries, c.key_size, by_position),
      k(c.batch, c.key_heads, a.keys, c.key_size, by_position),
      v(c.batch, c.value_heads, a.keys, c.value_size, by_position),
      dout(c.batch, c.out, a.queries, c.value_size, by_position);
  for (auto* t : {&q, &k, &v, &dout}) t->fill(random, 1);
  a.aligned = c.key_size % 8 == 0 && c.value_size % 8 == 0;
  Tensor<T> q_u = q, q_v = q;
  if (relative) q_u = biased(q, z.u), q_v = biased(q, z.v_bias);
  Tensor<T> out = dout, dq = q, dq_v = q, dk(c.batch, c.in, a.keys, c.key_size, by_position),
            dv(c.batch, c.out, a.keys, c.value_size, by_position);
  const auto unwritten = [](int64_t size) { return std::vector<float>(static_cast<size_t>(size), NAN); };
  std::vector<float> lse = unwritten(c.batch * c.in * a.queries), sums = lse, g,
                     dr = unwritten(c.batch * c.in * c.distances * c.key_size);
  host::Device device(static_cast<uint32_t>(pick(0, 5)));
  using Launches = AttentionLaunches<T, kSize>;
  const int least = least_memory<T, kSize>(a, relative);
  const int64_t most = kind == CaseKind::lengths ? least
                       : pick(0, 2) > 0          ? 2 * least
                                                 : 227;  // a single place, or several
  const Cramped launcher{{device, 227 << 10}, (all_memory ? 227 : static_cast<int>(pick(least, most))) << 10};
  const int64_t gradients = Launches::head_mixing_num_gradients(launcher, a);
  g = unwritten(c.batch * gradients * numbers);
  AttentionTensors tensors;
  tensors.batch = c.batch, tensors.q = q.any_rows(), tensors.k = k.any_rows(), tensors.v = v.any_rows(),
  tensors.out = out.any_rows(), tensors.dout = dout.any_rows();
  tensors.dq = dq.any_rows(), tensors.dk = dk.any_rows(), tensors.dv = dv.any_rows(), tensors.kv_read_once = false;
  std::vector<QueryStats> query_stats(lse.size() + kStatsPadding, QueryStats{NAN, NAN, NAN, NAN});
  tensors.query_stats = query_stats.data();
  tensors.lse = lse.data(), tensors.prob_sums = sums.data(), tensors.g = g.data();
  if (relative) {
    tensors.q_u = q_u.any_rows(), tensors.q_v = q_v.any_rows();
    tensors.dq_v = dq_v.any_rows(), tensors.dr = dr.data();
  }
  // Of the keys, also more than they are.
  tensors.num_splits = !relative && pick(0, 1) == 1 ? 1 << pick(1, 2) : 1;
  std::vector<float> found = unwritten(
      tensors.num_splits > 1 ? c.batch * a.queries * tensors.num_splits * std::max(2 * c.in, c.out * c.value_size) : 0);
  tensors.partial_out = found.data();
  RC_ASSERT(said(Launches::head_mixing_forward(launcher, a, tensors)) == "");
  RC_ASSERT(said(Launches::head_mixing_backward(launcher, a, tensors)) == "");

  const auto rounded = [](double x) { return to_double(from_double<T>(x)); };
  c.round_sum = rounded;
  const auto exact = reference::attention(c, q.to_doubles(), k.to_doubles(), v.to_doubles(), dout.to_doubles());
  c.round = rounded;
  const auto composed = reference::attention(c, q.to_doubles(), k.to_doubles(), v.to_doubles(), dout.to_doubles());
  const ExpectClose<T> expect_close{exact.logit_size};
  expect_close("lse", Doubles(lse.begin(), lse.end()), exact.lse, composed.lse, exact.lse_size);
  const auto thrice = [](Doubles sizes) {
    for (double& x : sizes) x *= std::is_same_v<T, Fp16> ? tolerance::kExchangedFp16 : 1;
    return sizes;
  };
  expect_close("out", out.to_doubles(), exact.out, composed.out, thrice(exact.out_size));
  const auto of_matrices = [&](const Doubles& x, int64_t each) {  // a row's matrices: of one all are summed
    return gradients == a.queries ? x : summed_rows(x, c.batch, each, numbers);
  };
  expect_close("dm", of_matrices(Doubles(g.begin(), g.end()), gradients), of_matrices(exact.dm, a.queries),
               of_matrices(composed.dm, a.queries), of_matrices(exact.dm_size, a.queries));
  Doubles dq_sum = dq.to_doubles();
  if (relative) {
    const Doubles by_distance = dq_v.to_doubles();
    expect_close("du", summed(dq_sum, c.batch, c.in, c.key_size), exact.du, composed.du, exact.du_size);
    expect_close("dv_bias", summed(by_distance, c.batch, c.in, c.key_size), exact.dv_bias, composed.dv_bias,
                 exact.dv_bias_size);
    expect_close("dr", summed(Doubles(dr.begin(), dr.end()), c.batch, c.in, c.distances * c.key_size), exact.dr,
                 composed.dr, exact.dr_size);
    for (size_t i = 0; i < dq_sum.size(); ++i) dq_sum[i] += by_distance[i];
  }
  expect_close("dq", dq_sum, exact.dq, composed.dq, exact.dq_size);
  expect_close("dk", dk.to_doubles(), exact.dk, composed.dk, exact.dk_size);
  expect_close("dv", dv.to_doubles(), exact.dv, composed.dv, thrice(exact.dv_size));
}

// What is wrong with the plans for up to 32 heads with so much memory, or nothing.
template <class T, int kSize>
std::string wrong_plan(int limit, bool relative = false) {
  for (int in = 1; in <= 32; ++in)
    for (int heads = 1; heads <= 32; ++heads) {
      AttentionParams a;
      a.in_heads = in, a.out_heads = heads;
      for (const HeadMixingPlan& plan : plans<T, kSize>(a, limit, relative))
        if (plan.num_stages < 1 || plan.heads_per_stage < 1 || plan.concurrent_stores < 1 ||
            plan.shared_bytes > limit || plan.threads() > kHeadMixingThreads)
          return std::to_string(in) + " and " + std::to_string(heads) + " heads of " + std::to_string(kSize);
    }
  return "";
}

}  // namespace

TEST_CASE("the kernels of a GPU for mixed heads equal the equations over random shapes, thread by thread", "[cuda]") {
  CHECK(check_few("fp32", [] { check_case<float, 32>(6, 60); }));
  CHECK(check_few("bf16", [] { check_case<Bf16, 64>(9, 60); }));
  CHECK(check_few("fp32, windows", [] { check_case<float, 16>(2, 80, false, CaseKind::windows); }));
  CHECK(check_few("bf16, few real keys", [] { check_case<Bf16, 16>(4, 80, false, CaseKind::lengths); }));
  // Results of some warps at a time go through shared memory.
  CHECK(check_few("fp32, large", [] { check_case<float, 96>(8, 5); }));
  CHECK(check_few("fp16, many heads", [] { check_case<Fp16, 16>(32, 20); }));
  // Gradients of queries by halves of the columns, those of keys and of values apart.
  CHECK(check_few("fp32, largest", [] { check_case<float, 256>(5, 8); }));
}

TEST_CASE("so they do where heads are mixed query by query, thread by thread", "[cuda]") {
  const auto anything = CaseKind::any;
  CHECK(check_few("up to 4 heads", [=] { check_case<Bf16, 64>(4, 90, false, anything, true); }));
  CHECK(check_few("up to 8 heads", [=] { check_case<Bf16, 64>(8, 90, false, anything, true); }));
  CHECK(check_few("up to 16 heads", [=] { check_case<Bf16, 16>(16, 60, false, anything, true); }));
  CHECK(check_few("windows", [] { check_case<Bf16, 16>(3, 90, false, CaseKind::windows, true); }));
  CHECK(check_few("few real keys", [] { check_case<Fp16, 16>(8, 90, false, CaseKind::lengths, true); }));
  CHECK(check_few("heads of 128", [=] { check_case<Bf16, 128>(8, 40, false, anything, true); }));
}

TEST_CASE("so they do with relative positions, with gaps between the keys, thread by thread", "[cuda]") {
  CHECK(check_few("fp32", [] { check_case<float, 32>(4, 50, true); }));
  CHECK(check_few("bf16", [] { check_case<Bf16, 64>(6, 50, true); }));
  CHECK(check_few("fp32, windows", [] { check_case<float, 16>(2, 80, true, CaseKind::windows); }));
  // Gradients of queries by halves of the columns, those of keys and of values apart.
  CHECK(check_few("fp32, large", [] { check_case<float, 192>(4, 5, true); }));
  CHECK(check_few("fp16, many heads", [] { check_case<Fp16, 16>(32, 16, true); }));
}

TEST_CASE("up to 32 mixed heads of up to 256 have place in the shared memory of every GPU", "[cuda]") {
  for (const int limit : {99 << 10, 163 << 10, 227 << 10}) {
    INFO(limit);
    CHECK(wrong_plan<float, 16>(limit) == "");
    CHECK(wrong_plan<float, 64>(limit) == "");
    CHECK(wrong_plan<float, 128>(limit) == "");
    CHECK(wrong_plan<float, 256>(limit) == "");
    CHECK(wrong_plan<Bf16, 64>(limit) == "");
    CHECK(wrong_plan<Bf16, 128>(limit) == "");
    CHECK(wrong_plan<Fp16, 192>(limit) == "");
    CHECK(wrong_plan<Fp16, 256>(limit) == "");
  }
  for (const int limit : {163 << 10, 227 << 10}) {  // of an A100 and an H100
    INFO(limit);
    CHECK(wrong_plan<float, 64>(limit, true) == "");
    CHECK(wrong_plan<float, 256>(limit, true) == "");
    CHECK(wrong_plan<Bf16, 64>(limit, true) == "");
    CHECK(wrong_plan<Fp16, 256>(limit, true) == "");
  }
  host::Device device;
  const host::Launcher ampere{device, 163 << 10};
  CHECK(said(AttentionLaunches<float, 256>::why_no_head_mixing(ampere, 32, 32, false)) == "");
  CHECK(said(AttentionLaunches<float, 256>::why_no_head_mixing(host::Launcher{device, 48 << 10}, 32, 32, false)) ==
        "head counts or sizes that exceed the shared memory of a block");
}
