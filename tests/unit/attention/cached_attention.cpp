// A cache whose rows are read where they were written, against tensors of them and loops in double precision.
#include "attention/fused/cached_attention.h"

#include <c10/core/GradMode.h>
#include <rapidcheck.h>

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "attention/fused/head_mixing_cpu.h"
#include "fixtures/aten.h"
#include "fixtures/errors.h"
#include "oracle/fused_policy.h"

using namespace mh;

namespace {

// Checks `found` for q (B, h, 1, d), k (B, h, T, d), v (B, hv, T, dv) and a matrix m (h, hv) or (B, 1, h, hv), if any.
std::string fault_of(const at::Tensor& found, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                     const at::Tensor& m = {}, const attention::AttentionSpec& policy = {}) {
  const reference::policy::Inputs x{{q, k, v, m, policy.head_scales, {}, {}, {}}, {}, policy, {}};
  const auto in = [&](at::ScalarType type) {
    return composed(x, leaves_of(x, q.scalar_type(), type, at::kCPU)).detach();
  };
  return numbers::fault_beside_composed({found}, {in(q.scalar_type())}, {in(at::kDouble)}, q.scalar_type());
}

// The rows that go on, some of them more than once.
at::Tensor some_rows(int64_t of, int64_t most) {
  return at::tensor(*rc::gen::container<std::vector<int64_t>>(static_cast<size_t>(*rc::gen::inRange<int64_t>(1, most)),
                                                              rc::gen::inRange<int64_t>(0, of)),
                    at::kLong);
}

}  // namespace

TEST_CASE("attention to a cache in place is attention to its rows, however they were moved", "[search]") {
  c10::NoGradGuard no_gradient;
  at::manual_seed(11);
  CHECK(rc::check([] {
    const int64_t heads = *rc::gen::inRange(1, 4), d = 16 * *rc::gen::inRange(1, 7);
    const auto type = *rc::gen::arbitrary<bool>() ? at::kFloat : at::kBFloat16;
    int64_t rows = *rc::gen::inRange(1, 6);
    const auto made = [&](int64_t length) {
      // As a joint projection gives it.
      return at::randn({rows, length, heads, d}).to(type).transpose(1, 2);
    };
    attention::Cache cache;
    at::Tensor k = made(*rc::gen::inRange(0, 3)), v = at::randn_like(k);
    if (k.size(2) > 0) cache.append(k, v);
    const int steps = *rc::gen::inRange(1, 90);
    for (int step = 0; step < steps; ++step) {
      const at::Tensor q = made(1), new_k = made(1), new_v = made(1);
      k = at::cat({k, new_k}, 2), v = at::cat({v, new_v}, 2);
      const int way = *rc::gen::inRange(0, 12);
      if (way == 0) {
        const auto [all_k, all_v] = cache.append(new_k, new_v);
        RC_ASSERT(at::equal(all_k, k));
        RC_ASSERT(at::equal(all_v, v));
      } else {
        const std::string fault = fault_of(attention::cached_attention(q, new_k, new_v, cache), q, k, v);
        RC_LOG() << fault << "\n";
        RC_ASSERT(fault.empty());
      }
      RC_ASSERT(cache.length() == k.size(2));
      if (way == 1) RC_ASSERT(at::equal(cache.all().first, k) && at::equal(cache.all().second, v));
      if (way == 2) {
        const int64_t kept = std::min<int64_t>(k.size(2), *rc::gen::inRange(1, 20));
        cache.keep_last(kept);
        k = k.narrow(2, k.size(2) - kept, kept), v = v.narrow(2, v.size(2) - kept, kept);
      }
      if (way > 4) {
        const at::Tensor order = some_rows(rows, rows + (way > 10 ? 3 : 1));
        cache.reorder(order);
        k = k.index_select(0, order), v = v.index_select(0, order);
        rows = order.numel();
      }
    }
  }));
}

TEST_CASE("mixed heads read a cache in place as they read tensors of its rows", "[search]") {
  c10::NoGradGuard no_gradient;
  CHECK(rc::check([] {
    at::manual_seed(*rc::gen::inRange<uint64_t>(0, 1 << 30));
    const int64_t in = *rc::gen::inRange(1, 5), out = *rc::gen::inRange(1, 5), dk = *rc::gen::inRange(1, 70),
                  dv = *rc::gen::inRange(1, 150);
    const auto type = *rc::gen::arbitrary<bool>() ? at::kFloat : at::kBFloat16;
    int64_t rows = *rc::gen::inRange(1, 6);
    const auto made = [&](int64_t heads, int64_t length, int64_t size) {
      return at::randn({rows, length, heads, size}).to(type).transpose(1, 2);
    };
    attention::Cache cache;
    at::Tensor k = made(in, 2, dk), v = made(out, 2, dv);
    cache.append(k, v);
    attention::AttentionSpec policy;
    if (*rc::gen::arbitrary<bool>()) policy.normaliser = kernels::Normaliser::sigsoftmax;
    if (*rc::gen::arbitrary<bool>()) policy.head_scales = at::randn({out});
    const int steps = *rc::gen::inRange(1, 40);
    for (int step = 0; step < steps; ++step) {
      const at::Tensor q = made(in, 1, dk), new_k = made(in, 1, dk), new_v = made(out, 1, dv);
      k = at::cat({k, new_k}, 2), v = at::cat({v, new_v}, 2);
      const at::Tensor m = *rc::gen::arbitrary<bool>() ? at::randn({in, out}) : at::randn({rows, 1, in, out});
      const int way = *rc::gen::inRange(0, 8);
      if (way == 0) {
        const auto [all_k, all_v] = cache.append(new_k, new_v);
        RC_ASSERT(at::equal(all_k, k) && at::equal(all_v, v));
        continue;
      }
      const at::Tensor z = attention::mixed_in_place(q, new_k, new_v, m, policy, cache);
      const std::string fault = fault_of(z, q, k, v, m, policy);
      RC_LOG() << fault << "\n";
      RC_ASSERT(fault.empty());
      RC_ASSERT(at::equal(attention::head_mixing_cpu(q, k, v, m, policy), z));
      if (way == 1) {
        const int64_t kept = std::min<int64_t>(k.size(2), *rc::gen::inRange(1, 20));
        cache.keep_last(kept);
        k = k.narrow(2, k.size(2) - kept, kept), v = v.narrow(2, v.size(2) - kept, kept);
      }
      if (way > 4) {
        const at::Tensor order = some_rows(rows, rows + 2);
        cache.reorder(order);
        k = k.index_select(0, order), v = v.index_select(0, order);
        rows = order.numel();
      }
    }
  }));
}

TEST_CASE("rows of a cache are the same bits wherever they stand", "[search]") {
  c10::NoGradGuard no_gradient;
  at::manual_seed(12);
  const at::Tensor past = at::randn({2, 2, 37, 64}), q = at::randn({2, 2, 1, 64});
  attention::Cache moved, plain;
  const auto step = [](attention::Cache& cache, const at::Tensor& x) {
    return attention::cached_attention(x, x + 1, x - 1, cache);
  };
  for (int64_t t = 0; t < 37; ++t) {
    const at::Tensor x = past.narrow(2, t, 1);
    const at::Tensor one = step(plain, x), other = step(moved, x);
    CHECK(at::equal(one, other));
    const at::Tensor swap = at::tensor({1, 0}, at::kLong);
    moved.reorder(swap), moved.reorder(swap);
  }
  const at::Tensor alone = at::tensor({1}, at::kLong);
  moved.reorder(alone);
  CHECK(at::equal(step(plain, q).narrow(0, 1, 1), step(moved, q.narrow(0, 1, 1))));
}
