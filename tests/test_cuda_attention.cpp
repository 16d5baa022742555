// The attention kernels of a GPU for heads that nothing mixes, thread by thread on the CPU, against loops in double.
#include <catch2/catch.hpp>

#include "cuda/attention_backward.h"
#include "cuda_cases.h"

using namespace mh::kernels;
using namespace cuda_cases;

namespace {

int tiles(int64_t length, int of) { return static_cast<int>((length + of - 1) / of); }

template <class T, int kSize>
void check_case(int64_t most_length) {
  const int64_t heads = pick(1, 3);
  Case z(heads, heads, most_length, kSize, false);
  reference::PolicyCase& c = z.exact;
  c.dropped_first = false;
  AttentionCall& a = z.call;
  std::mt19937 random(static_cast<uint32_t>(pick(0, 1 << 20)));
  const bool by_position = pick(0, 1) == 1;
  Tensor<T> q(c.batch, c.in, a.queries, c.key_size, by_position),
      k(c.batch, c.key_heads, a.keys, c.key_size, by_position),
      v(c.batch, c.value_heads, a.keys, c.value_size, by_position),
      dout(c.batch, c.out, a.queries, c.value_size, by_position);
  for (auto* t : {&q, &k, &v, &dout}) t->fill(random, 1);
  a.aligned = c.key_size % 8 == 0 && c.value_size % 8 == 0;
  Tensor<T> out = dout, dq = q, dk(c.batch, c.in, a.keys, c.key_size, by_position),
            dv(c.batch, c.out, a.keys, c.value_size, by_position);
  std::vector<float> log_sums(static_cast<size_t>(c.batch * c.in * a.queries), NAN), d = log_sums, only = log_sums;
  host::Device device(static_cast<uint32_t>(pick(0, 5)));
  const int rows = static_cast<int>(c.batch * c.in);

  using Forward = AttentionTiles<T, kSize>;
  const host::Grid of_queries{tiles(a.queries, Forward::kQueries), rows};
  device.run(of_queries, Forward::kThreads, sizeof(typename Forward::Shared),
             [&](const host::Thread& thread, void* shared) {
               attention_forward<T, kSize, true>(thread, a, q.read(), k.read(), v.read(), out.write(), log_sums.data(),
                                                 *static_cast<typename Forward::Shared*>(shared));
             });
  device.run(of_queries, Forward::kThreads, sizeof(typename Forward::Shared),
             [&](const host::Thread& thread, void* shared) {
               attention_forward<T, kSize, false>(thread, a, q.read(), k.read(), Rows<const T>{}, Rows<T>{},
                                                  only.data(), *static_cast<typename Forward::Shared*>(shared));
             });
  RC_ASSERT(only == log_sums);
  device.run({tiles(a.queries, 4), rows}, 128, 16, [&](const host::Thread& thread, void*) {
    attention_row_sums<T>(thread, a, out.read(), dout.read(), d.data());
  });
  using OfQueries = QueryGradientTiles<T, kSize>;
  const host::Grid blocks{tiles(a.queries, OfQueries::kQueries), rows};
  std::vector<float> dscale(static_cast<size_t>(blocks.x * rows), NAN);
  device.run(blocks, OfQueries::kThreads, sizeof(typename OfQueries::Shared),
             [&](const host::Thread& thread, void* shared) {
               attention_query_gradient<T, kSize>(thread, a, q.read(), k.read(), v.read(), dout.read(), log_sums.data(),
                                                  d.data(), dq.write(), dscale.data(),
                                                  *static_cast<typename OfQueries::Shared*>(shared));
             });
  using OfKeys = KeyGradientTiles<T, kSize>;
  const auto of_keys = [&]<bool keys, bool values>(std::bool_constant<keys>, std::bool_constant<values>) {
    device.run({tiles(a.keys, OfKeys::kKeys), rows}, OfKeys::kThreads, sizeof(typename OfKeys::Shared),
               [&](const host::Thread& thread, void* shared) {
                 attention_key_gradient<T, kSize, keys, values>(
                     thread, a, q.read(), k.read(), v.read(), dout.read(), log_sums.data(), d.data(), false, dk.write(),
                     dv.write(), *static_cast<typename OfKeys::Shared*>(shared));
               });
  };
  if constexpr (OfKeys::kApart)
    of_keys(std::true_type(), std::false_type()), of_keys(std::false_type(), std::true_type());
  else of_keys(std::true_type(), std::true_type());

  const auto exact = reference::attention(c, q.numbers(), k.numbers(), v.numbers(), dout.numbers());
  c.from_outputs = true;
  c.round = [](double x) { return widened(narrowed<T>(x)); };
  const auto composed = reference::attention(c, q.numbers(), k.numbers(), v.numbers(), dout.numbers());
  close<T>("out", out.numbers(), exact.out, composed.out, exact.out_size);
  close<T>("log_sums", Doubles(log_sums.begin(), log_sums.end()), exact.log_sums, composed.log_sums, exact.log_sums);
  close<T>("dq", dq.numbers(), exact.dq, composed.dq, exact.dq_size);
  close<T>("dk", dk.numbers(), exact.dk, composed.dk, exact.dk_size);
  close<T>("dv", dv.numbers(), exact.dv, composed.dv, exact.dv_size);
  Doubles of_scales(static_cast<size_t>(rows));
  for (size_t i = 0; i < dscale.size(); ++i) of_scales[i / static_cast<size_t>(blocks.x)] += dscale[i];
  close<T>("dscale", of_scales, exact.dscale, composed.dscale, exact.dscale);
}

}  // namespace

TEST_CASE("the attention kernels of a GPU equal the equations over random shapes, thread by thread", "[cuda]") {
  CHECK(rc::check("fp32", [] { check_case<float, 32>(100); }));
  CHECK(rc::check("bf16", [] { check_case<Bf16, 32>(100); }));
  CHECK(rc::check("fp16", [] { check_case<Fp16, 64>(150); }));
}
