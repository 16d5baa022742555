// The kernels of a GPU for mixed heads, thread by thread on the CPU, against loops in double.
#include <catch2/catch.hpp>

#include "cuda_cases.h"
#include "few.h"
#include "host_launcher.h"

using namespace mh::kernels;
using namespace cuda_cases;

namespace {

// What went wrong, or nothing; RapidCheck cannot print a null string.
std::string said(const char* problem) { return problem == nullptr ? "" : problem; }

// Of all kernels.
template <class T, int kSize>
std::vector<MixedPlan> plans(const MixedCall& a, int limit) {
  constexpr bool kApart = kMixedApart<T, kSize>;
  return {MixedForwardTiles<T, kSize>::plan(a, limit), MixedSumsTiles<T, kSize>::plan(a, limit),
          MixedQueryGradientTiles<T, kSize>::plan(a, limit),
          MixedKeyGradientTiles<T, kSize, !kApart, true>::plan(a, limit),
          MixedKeyGradientTiles<T, kSize, true, !kApart>::plan(a, limit)};
}

// Plans are made for less shared memory than there is, so that blocks of few rows are made up as those of many.
struct Cramped : host::Launcher {
  int planned;
  int most_shared_memory() const { return planned; }
};

// KiB of it for which there are plans.
template <class T, int kSize>
int least_memory(const MixedCall& a) {
  for (int least = 1;; ++least) {
    const auto all = plans<T, kSize>(a, least << 10);
    if (std::all_of(all.begin(), all.end(), [](const MixedPlan& plan) { return plan.slots > 0; })) return least;
  }
}

// With from as much memory as is needed at least to as much as is enough for all.
template <class T, int kSize>
void check_case(int64_t most_heads, int64_t most_length) {
  Case z(pick(1, most_heads), pick(1, most_heads), most_length, kSize, false);
  reference::PolicyCase& c = z.exact;
  MixedCall a;
  static_cast<AttentionCall&>(a) = z.call;
  a.in = static_cast<int>(c.in), a.dropped_first = c.dropped_first;
  a.dropout_heads = static_cast<int>(c.dropped_first ? c.in : c.out);
  std::mt19937 random(static_cast<uint32_t>(pick(0, 1 << 20)));
  // Scales of heads are part of the matrix.
  c.scales.clear(), c.policy.head_scales = a.head_scales = nullptr;
  std::normal_distribution<float> normal;
  const bool by_query = pick(0, 1) == 1, by_row = by_query || pick(0, 1) == 1;
  const int64_t numbers = c.in * c.out;
  std::vector<float> matrix(static_cast<size_t>((by_row ? c.batch : 1) * (by_query ? a.queries : 1) * numbers));
  for (float& x : matrix) x = normal(random);
  a.matrix = matrix.data(), a.matrix_query = by_query ? numbers : 0;
  a.matrix_row = by_query ? a.queries * numbers : by_row ? numbers : 0;
  for (int64_t b = 0; b < c.batch; ++b)
    for (int64_t t = 0; t < a.queries; ++t)
      for (int64_t i = 0; i < numbers; ++i)
        c.matrix.push_back(matrix[static_cast<size_t>(b * a.matrix_row + t * a.matrix_query + i)]);
  const bool by_position = pick(0, 1) == 1;
  Tensor<T> q(c.batch, c.in, a.queries, c.key_size, by_position),
      k(c.batch, c.key_heads, a.keys, c.key_size, by_position),
      v(c.batch, c.value_heads, a.keys, c.value_size, by_position),
      dout(c.batch, c.out, a.queries, c.value_size, by_position);
  for (auto* t : {&q, &k, &v, &dout}) t->fill(random, 1);
  a.aligned = c.key_size % 8 == 0 && c.value_size % 8 == 0;
  Tensor<T> out = dout, dq = q, dk(c.batch, c.in, a.keys, c.key_size, by_position),
            dv(c.batch, c.out, a.keys, c.value_size, by_position);
  const auto unwritten = [](int64_t size) { return std::vector<float>(static_cast<size_t>(size), NAN); };
  std::vector<float> log_sums = unwritten(c.batch * c.in * a.queries), sums = log_sums, d = log_sums,
                     g = unwritten(c.batch * a.queries * numbers);
  host::Device device(static_cast<uint32_t>(pick(0, 5)));
  using Launches = AttentionLaunches<T, kSize>;
  const int least = least_memory<T, kSize>(a);
  const Cramped launcher{{device}, static_cast<int>(pick(least, pick(0, 2) > 0 ? 2 * least : 163)) << 10};
  AttentionTensors tensors;
  tensors.batch = c.batch, tensors.q = q.any(), tensors.k = k.any(), tensors.v = v.any(), tensors.out = out.any(),
  tensors.dout = dout.any();
  tensors.dq = dq.any(), tensors.dk = dk.any(), tensors.dv = dv.any(), tensors.joined = false;
  tensors.log_sums = log_sums.data(), tensors.d = d.data(), tensors.sums = sums.data(), tensors.g = g.data();
  RC_ASSERT(said(Launches::mixed_forward(launcher, a, tensors)) == "");
  RC_ASSERT(said(Launches::mixed_backward(launcher, a, tensors)) == "");

  const auto exact = reference::attention(c, q.numbers(), k.numbers(), v.numbers(), dout.numbers());
  c.round = [](double x) { return widened(narrowed<T>(x)); };
  const auto composed = reference::attention(c, q.numbers(), k.numbers(), v.numbers(), dout.numbers());
  close<T>("log_sums", Doubles(log_sums.begin(), log_sums.end()), exact.log_sums, composed.log_sums, exact.log_sums);
  // Probabilities of fp16 are rounded once more than `close` knows of: when they are exchanged.
  const auto thrice = [](Doubles sizes) {
    for (double& x : sizes) x *= std::is_same_v<T, Fp16> ? 1.5 : 1;
    return sizes;
  };
  close<T>("out", out.numbers(), exact.out, composed.out, thrice(exact.out_size));
  close<T>("dm", Doubles(g.begin(), g.end()), exact.dm, composed.dm, exact.dm_size);
  close<T>("dq", dq.numbers(), exact.dq, composed.dq, exact.dq_size);
  close<T>("dk", dk.numbers(), exact.dk, composed.dk, exact.dk_size);
  close<T>("dv", dv.numbers(), exact.dv, composed.dv, thrice(exact.dv_size));
}

// What is wrong with the plans for up to 32 heads with so much memory, or nothing.
template <class T, int kSize>
std::string wrong_plan(int limit) {
  for (int in = 1; in <= 32; ++in)
    for (int heads = 1; heads <= 32; ++heads) {
      MixedCall a;
      a.in = in, a.heads = heads;
      for (const MixedPlan& plan : plans<T, kSize>(a, limit))
        if (plan.slots < 1 || plan.heads < 1 || plan.storing < 1 || plan.bytes > limit ||
            plan.threads() > kMixedThreads)
          return std::to_string(in) + " and " + std::to_string(heads) + " heads of " + std::to_string(kSize);
    }
  return "";
}

}  // namespace

TEST_CASE("the kernels of a GPU for mixed heads equal the equations over random shapes, thread by thread", "[cuda]") {
  CHECK(check_few("fp32", [] { check_case<float, 32>(6, 60); }));
  CHECK(check_few("bf16", [] { check_case<Bf16, 64>(9, 60); }));
  // Results of some warps at a time go through shared memory.
  CHECK(check_few("fp32, large", [] { check_case<float, 96>(8, 5); }));
  CHECK(check_few("fp16, many heads", [] { check_case<Fp16, 16>(32, 20); }));
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
  host::Device device;
  const host::Launcher ampere{device, 163 << 10};
  CHECK(said(AttentionLaunches<float, 256>::mixed_lacks(ampere, 32, 32)) == "");
  CHECK(said(AttentionLaunches<float, 256>::mixed_lacks(host::Launcher{device, 48 << 10}, 32, 32)) ==
        "more heads, or larger ones, than the shared memory of a block has place for");
}
