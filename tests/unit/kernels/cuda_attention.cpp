// The attention kernels of a GPU for heads that nothing mixes, thread by thread on the CPU, against loops in double.
#include <catch2/catch.hpp>

#include "emulator/cuda_cases.h"
#include "emulator/host_launcher.h"
#include "fixtures/reduced_cases.h"

using namespace mh::kernels;
using namespace cuda_cases;

namespace {

template <class T, int kSize>
void check_case(int64_t max_length, bool relative) {
  const int64_t heads = pick(1, 3);
  Case z(heads, heads, max_length, kSize, false);
  reference::PolicyCase& c = z.policy_case;
  c.dropped_first = false;
  AttentionParams& a = z.params;
  std::mt19937 random(static_cast<uint32_t>(pick(0, 1 << 20)));
  CaseTensors<T> x(z, random);
  Tensor<T> r(1, 0, 0, 0, x.q.by_position);
  if (relative) z.add_positions(r, random);
  host::Device device(static_cast<uint32_t>(pick(0, 5)));
  const host::Launcher launcher{device};
  using Launches = AttentionLaunches<T, kSize>;
  std::vector<float> dscale(static_cast<size_t>(c.batch * c.in * Launches::scale_tiles(a)), NAN);
  std::vector<float> du(relative ? dscale.size() * static_cast<size_t>(c.key_size) : 0, NAN),
      dv_bias = du, dr(static_cast<size_t>(c.batch) * r.data.size(), NAN);
  AttentionTensors tensors = x.pointers();
  tensors.dscale = dscale.data(), tensors.du = du.data(), tensors.dv_bias = dv_bias.data(), tensors.dr = dr.data();
  RC_ASSERT(Launches::template forward_splits<false>(launcher, a, tensors) == nullptr);
  const std::vector<float> only = std::exchange(x.lse, x.delta);
  tensors.lse = x.lse.data();
  // Of the keys, also more than they are.
  tensors.num_splits = pick(0, 1) == 1 ? static_cast<int>(pick(2, 7)) : 1;
  const auto of_query = static_cast<size_t>(tensors.num_splits > 1 ? tensors.num_splits * (c.value_size + 2) : 0);
  std::vector<float> found(x.lse.size() * of_query, NAN);
  tensors.partial_out = found.data();
  RC_ASSERT(Launches::forward(launcher, a, tensors) == nullptr);
  RC_ASSERT(tensors.num_splits > 1 || only == x.lse);
  RC_ASSERT(Launches::backward(launcher, a, tensors) == nullptr);

  const auto rounded = [](double number) { return to_double(from_double<T>(number)); };
  c.round_sum = rounded;
  const auto exact = reference::attention(c, x.q.to_doubles(), x.k.to_doubles(), x.v.to_doubles(), x.dout.to_doubles());
  c.from_outputs = true;
  c.round = rounded;
  const auto composed =
      reference::attention(c, x.q.to_doubles(), x.k.to_doubles(), x.v.to_doubles(), x.dout.to_doubles());
  const ExpectClose<T> expect_close{exact.logit_size};
  expect_close("out", x.out.to_doubles(), exact.out, composed.out, exact.out_size);
  expect_close("lse", Doubles(x.lse.begin(), x.lse.end()), exact.lse, composed.lse, exact.lse_size);
  expect_close("dq", x.dq.to_doubles(), exact.dq, composed.dq, exact.dq_size);
  expect_close("dk", x.dk.to_doubles(), exact.dk, composed.dk, exact.dk_size);
  expect_close("dv", x.dv.to_doubles(), exact.dv, composed.dv, exact.dv_size);
  Doubles of_scales(static_cast<size_t>(c.batch * c.in));
  for (size_t i = 0; i < dscale.size(); ++i) of_scales[i / static_cast<size_t>(Launches::scale_tiles(a))] += dscale[i];
  expect_close("dscale", of_scales, exact.dscale, composed.dscale, exact.dscale_size);
  if (!relative) return;
  // (batch, heads, parts, numbers) to (heads, numbers).
  const auto summed = [&](const std::vector<float>& parts, size_t numbers) {
    Doubles sums(static_cast<size_t>(c.in) * numbers);
    const size_t of_head = parts.size() / static_cast<size_t>(c.batch * c.in);
    for (size_t i = 0; i < parts.size(); ++i)
      sums[i / of_head % static_cast<size_t>(c.in) * numbers + i % numbers] += parts[i];
    return sums;
  };
  expect_close("du", summed(du, static_cast<size_t>(c.key_size)), exact.du, composed.du, exact.du_size);
  expect_close("dv_bias", summed(dv_bias, static_cast<size_t>(c.key_size)), exact.dv_bias, composed.dv_bias,
               exact.dv_bias_size);
  expect_close("dr", summed(dr, static_cast<size_t>(c.distances * c.key_size)), exact.dr, composed.dr, exact.dr_size);
}

}  // namespace

TEST_CASE("the attention kernels of a GPU equal the equations over random shapes, thread by thread", "[cuda]") {
  CHECK(check_few("fp32", [] { check_case<float, 32>(100, false); }));
  CHECK(check_few("bf16", [] { check_case<Bf16, 32>(100, false); }));
  CHECK(check_few("fp16", [] { check_case<Fp16, 64>(150, false); }));
}

TEST_CASE("so they do with relative positions, with gaps between the keys", "[cuda]") {
  CHECK(check_few("fp32", [] { check_case<float, 32>(90, true); }));
  CHECK(check_few("bf16", [] { check_case<Bf16, 64>(90, true); }));
  CHECK(check_few("fp16", [] { check_case<Fp16, 32>(140, true); }));
  // Two warps of a backward pass, and fewer rows at once.
  CHECK(check_few("fp32, large", [] { check_case<float, 80>(60, true); }));
  // Gradients of queries by halves of the columns, those of keys and of values apart; one stage.
  CHECK(check_few("bf16, larger", [] { check_case<Bf16, 192>(60, true); }));
  CHECK(check_few("fp32, largest", [] { check_case<float, 256>(40, true); }));
}

TEST_CASE("keys are divided among so many blocks as leave none of a GPU's multiprocessors idle for long", "[cuda]") {
  // A block each, or more.
  CHECK(best_num_splits(132, 64, 132) == 1);
  CHECK(best_num_splits(1000, 64, 132) == 1);
  // One query of 8 heads; of one head, which has less than a tile a multiprocessor.
  CHECK(best_num_splits(8, 64, 132) == 16);
  CHECK(best_num_splits(1, 64, 132) == 64);
  // Two rounds of half of the keys would take as long as one.
  CHECK(best_num_splits(70, 8, 132) == 1);
  CHECK(best_num_splits(70, 64, 132) == 5);
  // Nothing to divide, and no blocks.
  CHECK(best_num_splits(1, 1, 132) == 1);
  CHECK(best_num_splits(1, 0, 132) == 1);
  CHECK(best_num_splits(0, 64, 132) == 1);

  host::Device device;
  AttentionParams a;
  a.out_heads = 8, a.queries = 1, a.keys = 4096, a.causal = true;
  using Launches = AttentionLaunches<Bf16, 64>;
  CHECK(Launches::num_splits(host::Launcher{device}, a, 1) == best_num_splits(8, 64, 108));
  CHECK(Launches::num_splits(host::Launcher{device}, a, 4) == best_num_splits(32, 64, 108));
  a.window = 100;  // which three tiles hold
  CHECK(Launches::num_splits(host::Launcher{device}, a, 1) == best_num_splits(8, 3, 108));
  a.queries = 1024;
  CHECK(Launches::num_splits(host::Launcher{device}, a, 1) == 1);
}

TEST_CASE("relative positions of all head sizes have place on an A100; less memory is refused in words", "[cuda]") {
  host::Device device;
  const host::Launcher launcher{device}, small{device, 48 << 10};
  const auto lacks = [&]<class T, int... kSize>(T, std::integer_sequence<int, kSize...>) {
    return std::vector<std::string>{
        (AttentionLaunches<T, kSize>::why_no_relative(launcher) == nullptr ? "" : std::to_string(kSize))...};
  };
  const std::integer_sequence<int, 16, 32, 48, 64, 96, 128, 192, 256> sizes;
  CHECK(lacks(0.0F, sizes) == std::vector<std::string>(sizes.size()));
  CHECK(lacks(Bf16{}, sizes) == std::vector<std::string>(sizes.size()));
  CHECK(AttentionLaunches<float, 64>::why_no_relative(small) ==
        std::string("relative positions of heads that exceed the shared memory of a block"));
}
