// GPU attention kernels without head mixing, run in the emulator and compared with naive loops in double precision.
#include <catch2/catch.hpp>

#include "emulator/cuda_cases.h"
#include "emulator/host_launcher.h"
#include "fixtures/reduced_cases.h"

using namespace mh::kernels;
using namespace cuda_cases;

namespace {

// The options that a random case adds to the options that all kernels compute.
enum class Terms { none, relative_positions, logit_terms };

// Checks the output, the log-sum-exp and all gradients of a random case.
template <class T, int kSize>
void check_case(int64_t max_length, Terms terms) {
  const bool has_relative_positions = terms == Terms::relative_positions, has_logit_terms = terms == Terms::logit_terms;
  const int64_t heads = pick(1, 3);
  Case test_case(heads, heads, max_length, kSize, false);
  reference::OracleCase& c = test_case.oracle_case;
  c.dropout_before_mixing = false;
  AttentionParams& params = test_case.params;
  std::mt19937 random(static_cast<uint32_t>(pick(0, 1 << 20)));
  CaseTensors<T> x(test_case, random);
  Tensor<T> r(1, 0, 0, 0, x.q.is_position_major);
  if (has_relative_positions) test_case.add_relative_positions(r, random);
  if (has_logit_terms) test_case.add_logit_terms(random);
  host::EmulatedGpu device(static_cast<uint32_t>(pick(0, 5)));
  const host::Launcher launcher{device};
  using Launches = AttentionLaunches<T, kSize>;
  std::vector<float> dscale(static_cast<size_t>(c.batch * c.heads * Launches::num_query_tiles(params)), NAN);
  std::vector<float> du(has_relative_positions ? dscale.size() * static_cast<size_t>(c.key_size) : 0, NAN),
      dv_bias = du, dr(static_cast<size_t>(c.batch) * r.data.size(), NAN),
      dposition_bias(static_cast<size_t>(c.batch) * c.position_bias.size(), NAN);
  AttentionTensors tensors = x.attention_tensors();
  tensors.dscale = dscale.data(), tensors.du = du.data(), tensors.dv_bias = dv_bias.data(), tensors.dr = dr.data();
  tensors.dposition_bias = dposition_bias.data();
  if (!has_logit_terms)  // with logit terms no kernel computes the log-sum-exp alone
    RC_ASSERT(Launches::template forward_splits<false>(launcher, params, tensors) == nullptr);
  const std::vector<float> lse_without_out = std::exchange(x.lse, x.delta);
  tensors.lse = x.lse.data();
  // num_splits may exceed the number of keys.
  tensors.num_splits = pick(0, 1) == 1 ? static_cast<int>(pick(2, 7)) : 1;
  const auto partial_size = static_cast<size_t>(tensors.num_splits > 1 ? tensors.num_splits * (c.value_size + 2) : 0);
  std::vector<float> partial_out(x.lse.size() * partial_size, NAN);
  tensors.partial_out = partial_out.data();
  RC_ASSERT(Launches::forward(launcher, params, tensors) == nullptr);
  RC_ASSERT(has_logit_terms || tensors.num_splits > 1 || lse_without_out == x.lse);
  RC_ASSERT(Launches::backward(launcher, params, tensors) == nullptr);

  const auto round = [](double value) { return to_double(from_double<T>(value)); };
  c.round_biased_query = round;
  const auto exact_results =
      reference::attention(c, x.q.to_doubles(), x.k.to_doubles(), x.v.to_doubles(), x.dout.to_doubles());
  c.computes_delta_from_outputs = true;
  c.round = round;
  const auto composed_results =
      reference::attention(c, x.q.to_doubles(), x.k.to_doubles(), x.v.to_doubles(), x.dout.to_doubles());
  const ExpectClose<T> expect_close{exact_results.logit_magnitude};
  expect_close("out", x.out.to_doubles(), exact_results.out, composed_results.out, exact_results.out_magnitude);
  expect_close("lse", Doubles(x.lse.begin(), x.lse.end()), exact_results.lse, composed_results.lse,
               exact_results.lse_magnitude);
  expect_close("dq", x.dq.to_doubles(), exact_results.dq, composed_results.dq, exact_results.dq_magnitude);
  expect_close("dk", x.dk.to_doubles(), exact_results.dk, composed_results.dk, exact_results.dk_magnitude);
  expect_close("dv", x.dv.to_doubles(), exact_results.dv, composed_results.dv, exact_results.dv_magnitude);
  Doubles dscale_sums(static_cast<size_t>(c.batch * c.heads));
  for (size_t i = 0; i < dscale.size(); ++i)
    dscale_sums[i / static_cast<size_t>(Launches::num_query_tiles(params))] += dscale[i];
  expect_close("dscale", dscale_sums, exact_results.dscale, composed_results.dscale, exact_results.dscale_magnitude);
  Doubles dsinks(c.sinks.size());
  for (size_t i = 0; i < x.lse.size() && !c.sinks.empty(); ++i) {
    const size_t head = i / static_cast<size_t>(params.queries) % static_cast<size_t>(c.heads);
    dsinks[head] -= std::exp(c.sinks[head] - static_cast<double>(x.lse[i])) * static_cast<double>(x.delta[i]);
  }
  expect_close("dsinks", dsinks, exact_results.dsinks, composed_results.dsinks, exact_results.dsinks_magnitude);
  // Returns the sums of `addends` (batch, heads, tiles, size) over the batch and the tiles, (heads, size).
  const auto sum_tiles = [&](const std::vector<float>& addends, size_t size) {
    Doubles sums(static_cast<size_t>(c.heads) * size);
    const size_t num_head_terms = addends.size() / static_cast<size_t>(c.batch * c.heads);
    for (size_t i = 0; i < addends.size(); ++i)
      sums[i / num_head_terms % static_cast<size_t>(c.heads) * size + i % size] += addends[i];
    return sums;
  };
  expect_close("dposition_bias", sum_tiles(dposition_bias, static_cast<size_t>(c.num_bias_distances)),
               exact_results.dposition_bias, composed_results.dposition_bias, exact_results.dposition_bias_magnitude);
  if (!has_relative_positions) return;
  expect_close("du", sum_tiles(du, static_cast<size_t>(c.key_size)), exact_results.du, composed_results.du,
               exact_results.du_magnitude);
  expect_close("dv_bias", sum_tiles(dv_bias, static_cast<size_t>(c.key_size)), exact_results.dv_bias,
               composed_results.dv_bias, exact_results.dv_bias_magnitude);
  expect_close("dr", sum_tiles(dr, static_cast<size_t>(c.num_distances * c.key_size)), exact_results.dr,
               composed_results.dr, exact_results.dr_magnitude);
}

}  // namespace

TEST_CASE("emulated GPU attention matches the reference equations over random cases", "[cuda]") {
  CHECK(check_reduced("fp32", [] { check_case<float, 32>(100, Terms::none); }));
  CHECK(check_reduced("bf16", [] { check_case<Bf16, 32>(100, Terms::none); }));
  CHECK(check_reduced("fp16", [] { check_case<Fp16, 64>(150, Terms::none); }));
}

TEST_CASE("emulated GPU attention with relative positions over several key ranges matches the reference equations",
          "[cuda]") {
  CHECK(check_reduced("fp32", [] { check_case<float, 32>(90, Terms::relative_positions); }));
  CHECK(check_reduced("bf16", [] { check_case<Bf16, 64>(90, Terms::relative_positions); }));
  CHECK(check_reduced("fp16", [] { check_case<Fp16, 32>(140, Terms::relative_positions); }));
  // For this head size the backward pass has two warps and smaller tiles.
  CHECK(check_reduced("fp32, head size 80", [] { check_case<float, 80>(60, Terms::relative_positions); }));
  // For the following head sizes, dQ is computed in two column blocks, dK and dV in separate passes; fp32 has a single
  // pipeline stage.
  CHECK(check_reduced("bf16, head size 192", [] { check_case<Bf16, 192>(60, Terms::relative_positions); }));
  CHECK(check_reduced("fp32, head size 256", [] { check_case<float, 256>(40, Terms::relative_positions); }));
}

TEST_CASE("emulated GPU attention with soft caps, sinks, biases and two-sided windows matches the reference equations",
          "[cuda]") {
  CHECK(check_reduced("fp32", [] { check_case<float, 64>(90, Terms::logit_terms); }));
  CHECK(check_reduced("bf16", [] { check_case<Bf16, 64>(140, Terms::logit_terms); }));
  CHECK(check_reduced("fp16", [] { check_case<Fp16, 64>(90, Terms::logit_terms); }));
}

TEST_CASE("kernels of another head size or with relative positions refuse logit terms", "[cuda]") {
  host::EmulatedGpu device;
  const host::Launcher launcher{device}, small_launcher{device, 48 << 10};
  using Launches = AttentionLaunches<Bf16, 64>;
  using LaunchesOfOtherSize = AttentionLaunches<Bf16, 32>;
  CHECK(Launches::logit_term_constraint(launcher, false) == nullptr);
  CHECK_THAT(Launches::logit_term_constraint(small_launcher, false),
             Catch::EndsWith("exceed the shared memory of a block"));
  CHECK_THAT(Launches::logit_term_constraint(launcher, true), Catch::EndsWith("with relative positions"));
  CHECK_THAT(LaunchesOfOtherSize::logit_term_constraint(launcher, false), Catch::EndsWith("another head size than 64"));
  const float sinks[1] = {0}, bias[1] = {0};
  AttentionParams with_soft_cap, with_sinks, with_bias, with_window;
  with_soft_cap.soft_cap = 1, with_sinks.sinks = sinks, with_bias.position_bias.bias = bias, with_window.window = 1;
  for (const AttentionParams& params : {with_soft_cap, with_sinks, with_bias, with_window}) {
    CHECK(AttentionLaunches<Bf16, 32>::forward(launcher, params, {}) != nullptr);
    CHECK(AttentionLaunches<Bf16, 32>::backward(launcher, params, {}) != nullptr);
    CHECK(AttentionLaunches<Bf16, 64>::forward_splits<false>(launcher, params, {}) != nullptr);
  }
}

TEST_CASE("a NaN in a result of a kernel or in its reference exceeds every error bound", "[cuda]") {
  CHECK(max_difference({1, 2, -HUGE_VAL}, {1, 2.5, -HUGE_VAL}) == 0.5);
  for (const double number : {1.0, HUGE_VAL, static_cast<double>(NAN)})
    for (const auto& [x, y] : {std::pair(static_cast<double>(NAN), number), {number, static_cast<double>(NAN)}}) {
      INFO(x << " and " << y);
      CHECK(max_difference({x, 1}, {y, 3}) == HUGE_VAL);
      CHECK(max_difference({1, x}, {3, y}) == HUGE_VAL);
    }
  CHECK(is_within(1, 2));
  CHECK(!is_within(2, 1));
  CHECK(!is_within(HUGE_VAL, HUGE_VAL));
  CHECK(!is_within(0, HUGE_VAL));
}

TEST_CASE("num_splits minimises the time of split-KV on the multiprocessors of a GPU", "[cuda]") {
  // At least one thread block per multiprocessor: no split.
  CHECK(best_num_splits(132, 64, 132) == 1);
  CHECK(best_num_splits(1000, 64, 132) == 1);
  // 8 thread blocks, as for one query of 8 heads; a single thread block with fewer tiles than the GPU has
  // multiprocessors.
  CHECK(best_num_splits(8, 64, 132) == 16);
  CHECK(best_num_splits(1, 64, 132) == 64);
  // Dividing 8 tiles into two splits would need a second wave of thread blocks and save no time; dividing 64 tiles into
  // five splits saves time.
  CHECK(best_num_splits(70, 8, 132) == 1);
  CHECK(best_num_splits(70, 64, 132) == 5);
  // One tile, no tiles, and no thread blocks: no split.
  CHECK(best_num_splits(1, 1, 132) == 1);
  CHECK(best_num_splits(1, 0, 132) == 1);
  CHECK(best_num_splits(0, 64, 132) == 1);

  host::EmulatedGpu device;
  AttentionParams params;
  params.value_heads = 8, params.queries = 1, params.keys = 4096, params.causal = true;
  using Launches = AttentionLaunches<Bf16, 64>;
  CHECK(Launches::num_splits(host::Launcher{device}, params, 1) == best_num_splits(8, 64, 108));
  CHECK(Launches::num_splits(host::Launcher{device}, params, 4) == best_num_splits(32, 64, 108));
  params.window = 100;  // visible keys: at most three tiles
  CHECK(Launches::num_splits(host::Launcher{device}, params, 1) == best_num_splits(8, 3, 108));
  params.queries = 1024;
  CHECK(Launches::num_splits(host::Launcher{device}, params, 1) == 1);
}

TEST_CASE("a grid of more than 65535 blocks in y or z is refused before the launch", "[cuda]") {
  const auto problem_of = [](const Grid& grid) {
    const char* problem = grid_problem(grid);
    return std::string(problem != nullptr ? problem : "");
  };
  CHECK(problem_of({1 << 20, 65535, 65535}) == "");
  CHECK_THAT(problem_of({1, 65536, 1}), Catch::StartsWith("expected at most 65535 for batch rows times heads"));
  CHECK_THAT(problem_of({1, -1, 1}), Catch::StartsWith("expected at most 65535 for batch rows times heads"));
  CHECK_THAT(problem_of({1, 1, 65536}), Catch::StartsWith("expected at most 65535 groups of heads or splits of keys"));
}

TEST_CASE("relative positions of every head size fit into the shared memory of an A100; 48 KiB are refused", "[cuda]") {
  host::EmulatedGpu device;
  const host::Launcher launcher{device}, small_launcher{device, 48 << 10};
  const auto refused_sizes = [&]<class T, int... kSize>(T, std::integer_sequence<int, kSize...>) {
    return std::vector<std::string>{
        (AttentionLaunches<T, kSize>::relative_constraint(launcher) == nullptr ? "" : std::to_string(kSize))...};
  };
  const std::integer_sequence<int, 16, 32, 48, 64, 96, 128, 192, 256> sizes;
  CHECK(refused_sizes(0.0F, sizes) == std::vector<std::string>(sizes.size()));
  CHECK(refused_sizes(Bf16{}, sizes) == std::vector<std::string>(sizes.size()));
  CHECK(AttentionLaunches<float, 64>::relative_constraint(small_launcher) ==
        std::string("relative positions with a head size whose tiles exceed the shared memory of a block"));
}
