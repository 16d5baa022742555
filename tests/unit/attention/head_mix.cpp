// mix_heads and mix_values, the products of head tensors with mixing matrices, against sums in double precision:
// outputs and gradients.
#include "attention/head_mix.h"

#include <rapidcheck.h>

#include <catch2/catch.hpp>
#include <cmath>

#include "attention/masked_softmax.h"
#include "fixtures/errors.h"
#include "fixtures/numbers.h"
#include "fixtures/pick.h"
#include "fixtures/rounding.h"

using namespace mh;
using namespace mh::attention;
using numbers::normal;
using rounding::agree;

TEST_CASE("mix_heads and its gradients equal sums over heads for any layout and type", "[mixing]") {
  CHECK(rc::check([] {
    const int64_t b = pick(1, 3), num_in_heads = pick(1, 9), num_out_heads = pick(1, 9), t = pick(1, 40),
                  s = pick(1, 150);
    const bool has_matrix_per_query = pick(0, 1) == 1, is_transposed = pick(0, 1) == 1;
    const auto type = pick(0, 2) == 0 ? at::kBFloat16 : at::kFloat;
    const auto seed = static_cast<uint64_t>(pick(1, 1000000));
    at::Tensor x =
        (is_transposed ? normal({b, t, num_in_heads, s}, seed).transpose(1, 2) : normal({b, num_in_heads, t, s}, seed))
            .to(type);
    at::Tensor m = has_matrix_per_query ? normal({b, t, num_in_heads, num_out_heads}, seed + 1)
                                        : normal({num_in_heads, num_out_heads}, seed + 1);
    MixOptions mixing;
    mixing.stores_by_position = pick(0, 1) == 1;
    if (pick(0, 1) == 1) {
      mixing.causal_offset = pick(0, 3);
      x = x.tril(*mixing.causal_offset);
    }
    const at::Tensor dy = normal({b, num_out_heads, t, s}, seed + 2).to(type);
    x = x.detach().requires_grad_(), m = m.detach().requires_grad_();
    const at::Tensor y = mix_heads(x, m, mixing);
    y.backward(dy);
    const at::Tensor xd = x.detach().to(at::kDouble), md = m.detach().to(at::kDouble), dyd = dy.to(at::kDouble);
    const char* forward = has_matrix_per_query ? "bjts,btji->bits" : "bjts,ji->bits";
    const at::Tensor expected = at::einsum(forward, {xd, md});
    at::Tensor dx = at::einsum(has_matrix_per_query ? "bits,btji->bjts" : "bits,ji->bjts", {dyd, md});
    if (mixing.causal_offset) dx = dx.tril(*mixing.causal_offset);
    const at::Tensor visible_dy = mixing.causal_offset ? dyd.tril(*mixing.causal_offset) : dyd;
    const at::Tensor dm = at::einsum(has_matrix_per_query ? "bjts,bits->btji" : "bjts,bits->ji", {xd, visible_dy});
    // Returns whether `actual` is within the rounding error of a sum of `num_terms` products that is rounded to
    // `result_type`; `magnitudes`: the sums of the absolute products.
    auto is_near = [](const at::Tensor& actual, const at::Tensor& exact, int64_t num_terms, at::ScalarType result_type,
                      const at::Tensor& magnitudes) {
      return numbers::error(actual, exact) <=
             tolerance::sum_error_bound(num_terms, numbers::unit_roundoff(result_type), numbers::max_abs(magnitudes));
    };
    const auto absolute_product = [](const char* equation, const at::Tensor& a, const at::Tensor& c) {
      return at::einsum(equation, {a.abs(), c.abs()});
    };
    RC_ASSERT(is_near(y, expected, num_in_heads, type, absolute_product(forward, xd, md)));
    RC_ASSERT(is_near(x.grad(), dx, num_out_heads, type,
                      absolute_product(has_matrix_per_query ? "bits,btji->bjts" : "bits,ji->bjts", dyd, md)));
    const int64_t num_dm_terms = has_matrix_per_query ? s : b * t * s;
    const at::Tensor dm_magnitudes =
        absolute_product(has_matrix_per_query ? "bjts,bits->btji" : "bjts,bits->ji", xd, visible_dy);
    RC_ASSERT(is_near(m.grad(), dm, num_dm_terms, at::kFloat, dm_magnitudes));
    // For double precision, which has no kernel, mix_heads calls LibTorch operations.
    at::Tensor x_leaf = xd.clone().requires_grad_(), m_leaf = md.clone().requires_grad_();
    mix_heads(x_leaf, m_leaf, mixing).backward(visible_dy);
    RC_ASSERT(agree(m_leaf.grad(), dm, num_dm_terms, numbers::max_abs(dm_magnitudes)));
  }));
}

TEST_CASE("mix_values and its gradients equal mix_heads followed by the product with the values", "[mixing]") {
  for (auto type : {at::kFloat, at::kDouble})
    for (bool has_matrix_per_query : {false, true})
      for (bool causal : {false, true}) {
        MixOptions mixing;
        if (causal) mixing.causal_offset = 0;
        const at::Tensor r = normal({2, 4, 20, 6}, 4).to(type);
        std::vector<at::Tensor> results;
        for (bool uses_mix_values : {false, true}) {
          at::Tensor p = normal({2, 3, 20, 20}, 1).to(type), v = normal({2, 4, 20, 6}, 3).to(type),
                     m = (has_matrix_per_query ? normal({2, 20, 3, 4}, 2) : normal({3, 4}, 2)).to(type);
          if (causal) p = p.tril();
          p.requires_grad_(), v.requires_grad_(), m.requires_grad_();
          const at::Tensor z = uses_mix_values ? mix_values(p, m, v, mixing) : at::matmul(mix_heads(p, m, mixing), v);
          (z * r).sum().backward();
          for (const at::Tensor& t : {z.detach(), causal ? p.grad().tril() : p.grad(), v.grad(), m.grad()})
            results.push_back(t);
        }
        // Numbers of terms in the sums: for `z` 3 heads and 20 keys; for `dp` the value size 6 and 4 heads; for `dv` 20
        // queries and 3 heads; for `dm` the value size 6 and 2 rows of 20 queries and 20 keys.
        const int64_t num_terms[] = {3 + 20, 6 + 4, 20 + 3, 6 + 2 * 20 * 20};
        for (size_t i = 0; i < 4; ++i) CHECK(agree(results[i], results[i + 4], num_terms[i]));
      }
}

TEST_CASE("mix_values and its gradients equal the equation over several blocks of queries", "[mixing]") {
  const int64_t num_queries = 300, num_keys = 310, num_heads = 3;
  for (bool has_matrix_per_query : {false, true})
    for (const CausalOffset& offset : {CausalOffset(), CausalOffset(10), CausalOffset(-5)})
      for (int64_t num_in_heads : {num_heads, int64_t{2}}) {
        MixOptions mixing;
        mixing.causal_offset = offset;
        const at::Tensor r = normal({2, num_heads, num_queries, 6}, 4);
        const at::Tensor visible =
            offset ? at::ones({num_queries, num_keys}).tril(*offset) : at::ones({num_queries, num_keys});
        std::vector<at::Tensor> results;
        for (auto type : {at::kFloat, at::kDouble}) {
          at::Tensor p = (normal({2, num_in_heads, num_queries, num_keys}, 1) * visible).to(type),
                     v = normal({2, num_heads, num_keys, 6}, 3).to(type),
                     m = (has_matrix_per_query ? normal({2, num_queries, num_in_heads, num_heads}, 2)
                                               : normal({num_in_heads, num_heads}, 2))
                             .to(type);
          p.requires_grad_(), v.requires_grad_(), m.requires_grad_();
          const char* equation = has_matrix_per_query ? "bjts,btji->bits" : "bjts,ji->bits";
          // The result in double precision follows from the equation, without blocks of queries.
          const at::Tensor z =
              type == at::kFloat ? mix_values(p, m, v, mixing) : at::matmul(at::einsum(equation, {p, m}), v);
          (z * r.to(type)).sum().backward();
          for (const at::Tensor& t : {z.detach(), p.grad() * visible.to(type), v.grad(), m.grad()})
            results.push_back(t);
        }
        // Numbers of terms in the sums: for `z` the heads and keys; for `dp` the value size 6 and the heads; for `dv`
        // the queries and heads; for `dm` the value size 6 and the keys or, if there is one matrix, the rows, queries
        // and keys.
        const int64_t num_terms[] = {num_in_heads + num_keys, 6 + num_heads, num_queries + num_in_heads,
                                     6 + (has_matrix_per_query ? num_keys : 2 * num_queries * num_keys)};
        for (size_t i = 0; i < 4; ++i) CHECK(agree(results[i], results[i + 4], num_terms[i]));
      }
}

TEST_CASE("the backward pass of mix_heads does not overwrite a gradient that is still referenced", "[mixing]") {
  const at::Tensor x = normal({1, 3, 4, 5}, 1).requires_grad_(), m = normal({3, 3}, 2).requires_grad_(),
                   r = normal({1, 3, 4, 5}, 3);
  const at::Tensor p = masked_softmax(x, {}), y = mix_heads(p, m);
  y.retain_grad();
  p.retain_grad();
  (y * r).sum().backward();
  CHECK(at::equal(y.grad(), r));
  CHECK(agree(p.grad(), at::einsum("bits,ji->bjts", {r, m.detach()}), 3));
  const at::Tensor q = p.detach();
  CHECK(agree(x.grad(), q * (p.grad() - (q * p.grad()).sum(-1, true)), 5 + 3, numbers::max_abs(p.grad())));
  const at::Tensor dy = normal({1, 3, 4, 5}, 4), dy_copy = dy.clone();
  mix_heads(masked_softmax(x, {}), m).backward(dy);
  CHECK(at::equal(dy, dy_copy));
}

TEST_CASE("mix_heads is linear in the matrix, composes by matrix product, and keeps the norm if M is orthogonal",
          "[mixing]") {
  const at::Tensor x = normal({2, 4, 5, 33}, 1).to(at::kDouble), m = normal({4, 4}, 2).to(at::kDouble),
                   n = normal({4, 3}, 3).to(at::kDouble), m2 = normal({4, 4}, 4).to(at::kDouble);
  CHECK(agree(mix_heads(x, m + m2), mix_heads(x, m) + mix_heads(x, m2), 4 + 1));
  CHECK(agree(mix_heads(mix_heads(x, m), n), mix_heads(x, at::matmul(m, n)), 4 + 4));
  const at::Tensor q = std::get<0>(at::linalg_qr(m));
  CHECK(agree(mix_heads(x, q).square().sum(), x.square().sum(), x.numel()));
  CHECK(agree(mix_heads(x.to(at::kFloat), m.to(at::kFloat)), mix_heads(x, m), 4 + 2));
}
