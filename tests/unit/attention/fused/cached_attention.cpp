// Attention that reads the key/value cache in place, against contiguous keys and values and the equations in double
// precision.
#include "attention/fused/cached_attention.h"

#include <c10/core/GradMode.h>
#include <rapidcheck.h>

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "attention/fused/head_mixing_cpu.h"
#include "fixtures/aten.h"
#include "fixtures/errors.h"
#include "oracle/spec_attention.h"

using namespace mh;

namespace {

// Compares `actual` with attention of `q` (B, h, 1, d) to `k` (B, h, T, d) and `v` (B, hv, T, dv), with head mixing by
// `m` (h, hv) or (B, 1, h, hv) if `m` is defined. Returns "" if the error is within the bound, otherwise a description
// of the error.
std::string excess_error_of(const at::Tensor& actual, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                            const at::Tensor& m = {}, const attention::AttentionSpec& spec = {}) {
  const reference::spec::Inputs x{
      {q, k, v, m, spec.head_scales, {}, {}, {}, spec.sinks, spec.position_bias.bias}, {}, spec, {}};
  const auto composed_in = [&](at::ScalarType type) {
    return composed_attention(x, leaves_of(x, q.scalar_type(), type, at::kCPU)).detach();
  };
  return numbers::find_excess_error({actual}, {composed_in(q.scalar_type())}, {composed_in(at::kDouble)},
                                    q.scalar_type());
}

// Draws 1 to max_rows - 1 row indices below `num_rows`, with repetition, for Cache::reorder().
at::Tensor random_rows(int64_t num_rows, int64_t max_rows) {
  return at::tensor(
      *rc::gen::container<std::vector<int64_t>>(static_cast<size_t>(*rc::gen::inRange<int64_t>(1, max_rows)),
                                                rc::gen::inRange<int64_t>(0, num_rows)),
      at::kLong);
}

constexpr int64_t kNumDistances = 200;  // more than the positions of any cache of these tests

// Adds a window, a soft cap, sinks and a position bias, each in half of the cases, to `spec`.
void add_logit_terms(int64_t num_heads, attention::AttentionSpec& spec) {
  if (*rc::gen::arbitrary<bool>()) spec.causal = true, spec.window = *rc::gen::inRange<int64_t>(1, 40);
  if (*rc::gen::arbitrary<bool>()) spec.soft_cap = 2;
  if (*rc::gen::arbitrary<bool>()) spec.sinks = at::randn({num_heads});
  if (*rc::gen::arbitrary<bool>()) spec.position_bias.bias = at::randn({num_heads, kNumDistances});
}
// Sets the key range of the position bias for a query at position length - 1.
void set_key_range(int64_t length, attention::AttentionSpec& spec) {
  if (spec.position_bias.bias.defined()) spec.position_bias.key_ranges = {{0, length, kNumDistances - length}};
}

}  // namespace

TEST_CASE("cached_attention equals attention to contiguous keys after any reorder, append and retain_last",
          "[search]") {
  c10::NoGradGuard no_gradient;
  CHECK(rc::check([] {
    at::manual_seed(*rc::gen::inRange<uint64_t>(0, 1 << 30));
    const int64_t kv_heads = *rc::gen::inRange(1, 4), group_size = *rc::gen::inRange(1, 4),
                  d = 16 * *rc::gen::inRange(1, 7);
    const auto type = *rc::gen::arbitrary<bool>() ? at::kFloat : at::kBFloat16;
    int64_t num_rows = *rc::gen::inRange(1, 6);
    attention::AttentionSpec spec;
    if (*rc::gen::arbitrary<bool>()) spec.scale = 0.3;
    for (int64_t head = 0; group_size > 1 && head < kv_heads * group_size; ++head)
      spec.kv_head_of.push_back(head / group_size);
    add_logit_terms(kv_heads * group_size, spec);
    const auto random_tensor = [&](int64_t heads, int64_t length) {
      // Stored as (rows, length, heads, d), the layout of a joint projection.
      return at::randn({num_rows, length, heads, d}).to(type).transpose(1, 2);
    };
    const auto random_heads = [&](int64_t length) { return random_tensor(kv_heads, length); };
    attention::Cache cache;
    at::Tensor k = random_heads(*rc::gen::inRange(0, 3)), v = at::randn_like(k);
    if (k.size(2) > 0) cache.append(k, v);
    const int num_steps = *rc::gen::inRange(1, 90);
    for (int step = 0; step < num_steps; ++step) {
      const at::Tensor q = random_tensor(kv_heads * group_size, 1), new_k = random_heads(1), new_v = random_heads(1);
      k = nn::cat({k, new_k}, 2), v = nn::cat({v, new_v}, 2);
      set_key_range(k.size(2), spec);
      const int action = *rc::gen::inRange(0, 12);
      if (action == 0) {
        const auto [all_k, all_v] = cache.append(new_k, new_v);
        RC_ASSERT(at::equal(all_k, k));
        RC_ASSERT(at::equal(all_v, v));
      } else {
        const std::string excess_error =
            excess_error_of(attention::cached_attention(q, new_k, new_v, spec, cache), q, k, v, {}, spec);
        RC_LOG() << excess_error << "\n";
        RC_ASSERT(excess_error.empty());
      }
      RC_ASSERT(cache.length() == k.size(2));
      if (action == 1)
        RC_ASSERT(at::equal(cache.keys_and_values().first, k) && at::equal(cache.keys_and_values().second, v));
      if (action == 2) {
        const int64_t num_last = std::min<int64_t>(k.size(2), *rc::gen::inRange(1, 20));
        cache.retain_last(num_last);
        k = k.narrow(2, k.size(2) - num_last, num_last), v = v.narrow(2, v.size(2) - num_last, num_last);
      }
      if (action > 4) {
        const at::Tensor order = random_rows(num_rows, num_rows + (action > 10 ? 3 : 1));
        cache.reorder(order);
        k = k.index_select(0, order), v = v.index_select(0, order);
        num_rows = order.numel();
      }
    }
  }));
}

TEST_CASE("head_mixing_decode_cpu equals head_mixing_cpu on contiguous keys after any reorder, append and retain_last",
          "[search]") {
  c10::NoGradGuard no_gradient;
  CHECK(rc::check([] {
    at::manual_seed(*rc::gen::inRange<uint64_t>(0, 1 << 30));
    const int64_t heads = *rc::gen::inRange(1, 5), value_heads = *rc::gen::inRange(1, 5), dk = *rc::gen::inRange(1, 70),
                  dv = *rc::gen::inRange(1, 150);
    const auto type = *rc::gen::arbitrary<bool>() ? at::kFloat : at::kBFloat16;
    int64_t num_rows = *rc::gen::inRange(1, 6);
    const auto random_heads = [&](int64_t num_heads, int64_t length, int64_t size) {
      return at::randn({num_rows, length, num_heads, size}).to(type).transpose(1, 2);
    };
    attention::Cache cache;
    at::Tensor k = random_heads(heads, 2, dk), v = random_heads(value_heads, 2, dv);
    cache.append(k, v);
    attention::AttentionSpec spec;
    if (*rc::gen::arbitrary<bool>()) spec.normaliser = kernels::Normaliser::sigsoftmax;
    if (*rc::gen::arbitrary<bool>()) spec.head_scales = at::randn({value_heads});
    add_logit_terms(heads, spec);
    const int num_steps = *rc::gen::inRange(1, 40);
    for (int step = 0; step < num_steps; ++step) {
      const at::Tensor q = random_heads(heads, 1, dk), new_k = random_heads(heads, 1, dk),
                       new_v = random_heads(value_heads, 1, dv);
      k = nn::cat({k, new_k}, 2), v = nn::cat({v, new_v}, 2);
      set_key_range(k.size(2), spec);
      const at::Tensor m =
          *rc::gen::arbitrary<bool>() ? at::randn({heads, value_heads}) : at::randn({num_rows, 1, heads, value_heads});
      const int action = *rc::gen::inRange(0, 8);
      if (action == 0) {
        const auto [all_k, all_v] = cache.append(new_k, new_v);
        RC_ASSERT(at::equal(all_k, k) && at::equal(all_v, v));
        continue;
      }
      const at::Tensor z = attention::head_mixing_decode_cpu(q, new_k, new_v, m, spec, cache);
      const std::string excess_error = excess_error_of(z, q, k, v, m, spec);
      RC_LOG() << excess_error << "\n";
      RC_ASSERT(excess_error.empty());
      RC_ASSERT(at::equal(attention::head_mixing_cpu(q, k, v, m, spec), z));
      if (action == 1) {
        const int64_t num_last = std::min<int64_t>(k.size(2), *rc::gen::inRange(1, 20));
        cache.retain_last(num_last);
        k = k.narrow(2, k.size(2) - num_last, num_last), v = v.narrow(2, v.size(2) - num_last, num_last);
      }
      if (action > 4) {
        const at::Tensor order = random_rows(num_rows, num_rows + 2);
        cache.reorder(order);
        k = k.index_select(0, order), v = v.index_select(0, order);
        num_rows = order.numel();
      }
    }
  }));
}

TEST_CASE("cached_attention is bit-identical for any mapping of positions to physical cache rows", "[search]") {
  c10::NoGradGuard no_gradient;
  at::manual_seed(12);
  const at::Tensor inputs = at::randn({2, 2, 37, 64}), q = at::randn({2, 2, 1, 64});
  attention::Cache reordered_cache, ordered_cache;
  const auto step = [](attention::Cache& cache, const at::Tensor& x) {
    return attention::cached_attention(x, x + 1, x - 1, {}, cache);
  };
  for (int64_t t = 0; t < 37; ++t) {
    const at::Tensor x = inputs.narrow(2, t, 1);
    const at::Tensor expected = step(ordered_cache, x), actual = step(reordered_cache, x);
    CHECK(at::equal(expected, actual));
    const at::Tensor swap = at::tensor({1, 0}, at::kLong);
    reordered_cache.reorder(swap), reordered_cache.reorder(swap);
  }
  const at::Tensor row_1 = at::tensor({1}, at::kLong);
  reordered_cache.reorder(row_1);
  CHECK(at::equal(step(ordered_cache, q).narrow(0, 1, 1), step(reordered_cache, q.narrow(0, 1, 1))));
}
