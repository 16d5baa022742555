// Products of heads with mixing matrices against plain sums, forward and gradients.
#include "attention/head_mix.h"

#include <rapidcheck.h>

#include <catch2/catch.hpp>
#include <cmath>

#include "attention/masked_softmax.h"
#include "fixtures/errors.h"
#include "fixtures/numbers.h"

using namespace mh;
using namespace mh::attention;
using numbers::close;
using numbers::doubles;
using numbers::normal;
using numbers::worst;

TEST_CASE("mixing equals a sum over heads, on any layout and type, forward and backward", "[mixing]") {
  CHECK(rc::check([] {
    const auto pick = [](int64_t low, int64_t high) { return *rc::gen::inRange<int64_t>(low, high + 1); };
    const int64_t b = pick(1, 3), in = pick(1, 9), out = pick(1, 9), t = pick(1, 40), s = pick(1, 150);
    const bool by_position = pick(0, 1) == 1, transposed = pick(0, 1) == 1;
    const auto type = pick(0, 2) == 0 ? at::kBFloat16 : at::kFloat;
    const auto seed = static_cast<uint64_t>(pick(1, 1000000));
    at::Tensor x = (transposed ? normal({b, t, in, s}, seed).transpose(1, 2) : normal({b, in, t, s}, seed)).to(type);
    at::Tensor m = by_position ? normal({b, t, in, out}, seed + 1) : normal({in, out}, seed + 1);
    Mixing mixing;
    mixing.by_position = pick(0, 1) == 1;
    if (pick(0, 1) == 1) {
      mixing.causal_offset = pick(0, 3);
      x = x.tril(*mixing.causal_offset);
    }
    const at::Tensor dy = normal({b, out, t, s}, seed + 2).to(type);
    x = x.detach().requires_grad_(), m = m.detach().requires_grad_();
    const at::Tensor y = mix_heads(x, m, mixing);
    y.backward(dy);
    const at::Tensor xd = x.detach().to(at::kDouble), md = m.detach().to(at::kDouble), dd = dy.to(at::kDouble);
    const char* how = by_position ? "bjts,btji->bits" : "bjts,ji->bits";
    const at::Tensor wanted = at::einsum(how, {xd, md});
    at::Tensor dx = at::einsum(by_position ? "bits,btji->bjts" : "bits,ji->bjts", {dd, md});
    if (mixing.causal_offset) dx = dx.tril(*mixing.causal_offset);
    const at::Tensor seen = mixing.causal_offset ? dd.tril(*mixing.causal_offset) : dd;
    const at::Tensor dm = at::einsum(by_position ? "bjts,bits->btji" : "bjts,bits->ji", {xd, seen});
    // Whether `found` is a sum of `terms` products, rounded to a type; `sizes`: the sum of their absolute values.
    auto near = [](const at::Tensor& found, const at::Tensor& exact, int64_t terms, at::ScalarType to,
                   const at::Tensor& sizes) {
      return numbers::error(found, exact) <=
             tolerance::of_sum(terms, numbers::rounding_unit(to), numbers::size_of(sizes));
    };
    const auto product = [](const char* equation, const at::Tensor& a, const at::Tensor& c) {
      return at::einsum(equation, {a.abs(), c.abs()});
    };
    RC_ASSERT(near(y, wanted, in, type, product(how, xd, md)));
    RC_ASSERT(near(x.grad(), dx, out, type, product(by_position ? "bits,btji->bjts" : "bits,ji->bjts", dd, md)));
    RC_ASSERT(near(m.grad(), dm, by_position ? s : b * t * s, at::kFloat,
                   product(by_position ? "bjts,bits->btji" : "bjts,bits->ji", xd, seen)));
    // Another type takes the tensor library's way.
    at::Tensor other = xd.clone().requires_grad_(), matrix = md.clone().requires_grad_();
    mix_heads(other, matrix, mixing).backward(seen);
    RC_ASSERT(numbers::error(matrix.grad(), dm) < 1e-10 * std::max(1.0, numbers::size_of(dm)));
  }));
}

TEST_CASE("mixing and multiplying at once equals doing one after the other, gradients included", "[mixing]") {
  for (auto type : {at::kFloat, at::kDouble})
    for (bool by_position : {false, true})
      for (bool causal : {false, true}) {
        Mixing mixing;
        if (causal) mixing.causal_offset = 0;
        const at::Tensor r = normal({2, 4, 20, 6}, 4).to(type);
        std::vector<at::Tensor> results;
        for (bool at_once : {false, true}) {
          at::Tensor p = normal({2, 3, 20, 20}, 1).to(type), v = normal({2, 4, 20, 6}, 3).to(type),
                     m = (by_position ? normal({2, 20, 3, 4}, 2) : normal({3, 4}, 2)).to(type);
          if (causal) p = p.tril();
          p.requires_grad_(), v.requires_grad_(), m.requires_grad_();
          const at::Tensor z = at_once ? mix_values(p, m, v, mixing) : at::matmul(mix_heads(p, m, mixing), v);
          (z * r).sum().backward();
          for (const at::Tensor& t : {z.detach(), causal ? p.grad().tril() : p.grad(), v.grad(), m.grad()})
            results.push_back(t);
        }
        for (size_t i = 0; i < 4; ++i) CHECK(close(results[i], results[i + 4], 1e-4));
      }
}

TEST_CASE("mixing and multiplying at once is right over several blocks of queries", "[mixing]") {
  const int64_t queries = 300, keys = 310, heads = 3;
  for (bool by_position : {false, true})
    for (const CausalOffset& offset : {CausalOffset(), CausalOffset(10), CausalOffset(-5)})
      for (int64_t in : {heads, int64_t{2}}) {
        Mixing mixing;
        mixing.causal_offset = offset;
        const at::Tensor r = normal({2, heads, queries, 6}, 4);
        const at::Tensor seen = offset ? at::ones({queries, keys}).tril(*offset) : at::ones({queries, keys});
        std::vector<at::Tensor> results;
        for (auto type : {at::kFloat, at::kDouble}) {
          at::Tensor p = (normal({2, in, queries, keys}, 1) * seen).to(type),
                     v = normal({2, heads, keys, 6}, 3).to(type),
                     m = (by_position ? normal({2, queries, in, heads}, 2) : normal({in, heads}, 2)).to(type);
          p.requires_grad_(), v.requires_grad_(), m.requires_grad_();
          const char* how = by_position ? "bjts,btji->bits" : "bjts,ji->bits";
          // In double precision the equation itself, in one piece.
          const at::Tensor z =
              type == at::kFloat ? mix_values(p, m, v, mixing) : at::matmul(at::einsum(how, {p, m}), v);
          (z * r.to(type)).sum().backward();
          for (const at::Tensor& t : {z.detach(), p.grad() * seen.to(type), v.grad(), m.grad()}) results.push_back(t);
        }
        for (size_t i = 0; i < 4; ++i) CHECK(worst(doubles(results[i]), doubles(results[i + 4])) < 1e-5);
      }
}

TEST_CASE("a gradient that is kept is not written over", "[mixing]") {
  const at::Tensor x = normal({1, 3, 4, 5}, 1).requires_grad_(), m = normal({3, 3}, 2).requires_grad_(),
                   r = normal({1, 3, 4, 5}, 3);
  const at::Tensor p = masked_softmax(x, {}), y = mix_heads(p, m);
  y.retain_grad();
  p.retain_grad();
  (y * r).sum().backward();
  CHECK(at::equal(y.grad(), r));
  CHECK(close(p.grad(), at::einsum("bits,ji->bjts", {r, m.detach()})));
  const at::Tensor q = p.detach();
  CHECK(close(x.grad(), q * (p.grad() - (q * p.grad()).sum(-1, true))));
  const at::Tensor kept = normal({1, 3, 4, 5}, 4), copy = kept.clone();
  mix_heads(masked_softmax(x, {}), m).backward(kept);
  CHECK(at::equal(kept, copy));
}

TEST_CASE("mixing is linear in the matrix, composes, and an orthogonal one keeps the norm", "[mixing]") {
  const at::Tensor x = normal({2, 4, 5, 33}, 1).to(at::kDouble), m = normal({4, 4}, 2).to(at::kDouble),
                   n = normal({4, 3}, 3).to(at::kDouble), m2 = normal({4, 4}, 4).to(at::kDouble);
  CHECK(close(mix_heads(x, m + m2), mix_heads(x, m) + mix_heads(x, m2), 1e-12));
  CHECK(close(mix_heads(mix_heads(x, m), n), mix_heads(x, at::matmul(m, n)), 1e-12));
  const at::Tensor q = std::get<0>(at::linalg_qr(m));
  CHECK(close(mix_heads(x, q).square().sum(), x.square().sum(), 1e-10));
  CHECK(close(mix_heads(x.to(at::kFloat), m.to(at::kFloat)), mix_heads(x, m).to(at::kFloat), 1e-5));
}
