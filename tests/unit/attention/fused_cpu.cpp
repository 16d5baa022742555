// The attention kernel against loops in double precision, and against the composed path's own error.
#include "attention/fused/fused_cpu.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <rapidcheck.h>

#include <catch2/catch.hpp>
#include <cmath>
#include <vector>

#include "fixtures/layers.h"
#include "fixtures/numbers.h"
#include "fixtures/status.h"
#include "nn/ops.h"

using namespace mh;
using numbers::error;
using numbers::size_of;

namespace {

// From the equation, one query after the other. Differentiable by at:: operations on double tensors.
at::Tensor by_queries(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, bool causal) {
  std::vector<at::Tensor> rows;
  for (int64_t i = 0; i < q.size(2); ++i) {
    int64_t seen = causal ? k.size(2) - q.size(2) + i + 1 : k.size(2);
    at::Tensor logits =
        at::matmul(q.narrow(2, i, 1), k.narrow(2, 0, seen).transpose(2, 3)) / std::sqrt(static_cast<double>(q.size(3)));
    rows.push_back(at::matmul(at::softmax(logits, -1), v.narrow(2, 0, seen)));
  }
  return at::cat(rows, 2);
}

at::Tensor composed(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, bool causal) {
  at::Tensor logits = at::matmul(q, k.transpose(2, 3)).to(at::kFloat) / std::sqrt(static_cast<double>(q.size(3)));
  if (causal) logits = logits.masked_fill(at::ones({q.size(2), k.size(2)}, at::kBool).tril().logical_not(), -INFINITY);
  return at::matmul(at::softmax(logits, -1).to(v.scalar_type()), v);
}

at::Tensor fused(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, bool causal) {
  return attention::fused_cpu(q, k, v, {causal});
}

struct Run {
  at::Tensor out, dq, dk, dv;
};

template <class F>
Run run(const F& f, const at::Tensor& q0, const at::Tensor& k0, const at::Tensor& v0, const at::Tensor& dout,
        bool causal, at::ScalarType type) {
  auto leaf = [&](const at::Tensor& t) { return t.to(type).detach().clone().requires_grad_(); };
  at::Tensor q = leaf(q0), k = leaf(k0), v = leaf(v0);
  at::Tensor out = f(q, k, v, causal);
  out.backward(dout.to(type));
  return {out.detach(), q.grad(), k.grad(), v.grad()};
}

}  // namespace

TEST_CASE("the attention kernel errs at most twice as much as composed attention", "[attention]") {
  at::manual_seed(5);
  struct Case {
    int64_t batch, heads, queries, keys, size;
    bool causal;
  };
  for (Case c : {Case{1, 1, 1, 1, 16, true},
                 {2, 3, 7, 7, 16, true},
                 {1, 2, 33, 33, 32, true},
                 {2, 2, 100, 100, 48, true},
                 {1, 1, 256, 256, 64, true},
                 {1, 2, 5, 50, 32, false},
                 {2, 1, 70, 31, 80, false},
                 {1, 1, 64, 64, 128, false}}) {
    at::Tensor q = at::randn({c.batch, c.heads, c.queries, c.size}) * 2,
               k = at::randn({c.batch, c.heads, c.keys, c.size});
    at::Tensor v = at::randn_like(k), dout = at::randn_like(q);
    for (at::ScalarType type : {at::kFloat, at::kBFloat16}) {
      INFO(c.queries << " x " << c.keys << " size " << c.size << (type == at::kFloat ? " fp32" : " bf16"));
      auto rounded = [&](const at::Tensor& t) { return t.to(type); };
      Run exact =
          run(by_queries, rounded(q), rounded(k), rounded(v), rounded(dout).to(at::kDouble), c.causal, at::kDouble);
      Run plain = run(composed, q, k, v, dout, c.causal, type);
      Run fast = run(fused, q, k, v, dout, c.causal, type);
      double unit = type == at::kFloat ? 0x1p-20 : 0x1p-8;
      auto within = [&](const at::Tensor& mine, const at::Tensor& other, const at::Tensor& truth) {
        CHECK(error(mine, truth) <= 2 * error(other, truth) + unit * size_of(truth));
      };
      within(fast.out, plain.out, exact.out);
      within(fast.dq, plain.dq, exact.dq);
      within(fast.dk, plain.dk, exact.dk);
      within(fast.dv, plain.dv, exact.dv);
    }
  }
}

TEST_CASE("the attention kernel reads strided heads of a joint projection and gives its gradient", "[attention]") {
  const int64_t batch = 2, length = 40, heads = 3, size = 16;
  at::Tensor joint = at::randn({batch, length, 3 * heads * size}), dout = at::randn({batch, heads, length, size});
  at::Tensor a = joint.clone().requires_grad_();
  auto parts = attention::split_projection(a, heads, size, heads, size);
  attention::fused_cpu(parts[0], parts[1], parts[2], {true}).backward(dout);
  at::Tensor b = joint.to(at::kDouble).requires_grad_();
  auto part = [&](int64_t i) {
    return b.narrow(2, i * heads * size, heads * size).view({batch, length, heads, size}).transpose(1, 2);
  };
  by_queries(part(0), part(1), part(2), true).backward(dout.to(at::kDouble));
  CHECK(error(a.grad(), b.grad()) <= 1e-5 * size_of(b.grad()));
}

TEST_CASE("split_projection joins gradients that come from anywhere", "[attention]") {
  at::Tensor joint = at::randn({2, 5, 2 * (3 + 3) + 3 * 4}).requires_grad_();
  auto parts = attention::split_projection(joint, 2, 3, 3, 4);
  (parts[0].sum() + 2 * parts[1].sum() + 3 * parts[2].sum()).backward();
  at::Tensor expected = at::cat({at::full({6}, 1.0F), at::full({6}, 2.0F), at::full({12}, 3.0F)}).expand({2, 5, 24});
  CHECK(at::equal(joint.grad(), expected));
  // One part alone: the others' gradient is zero.
  joint.mutable_grad() = at::Tensor();
  attention::split_projection(joint, 2, 3, 3, 4)[1].sum().backward();
  CHECK(at::equal(joint.grad(), at::cat({at::zeros({6}), at::ones({6}), at::zeros({12})}).expand({2, 5, 24})));
}

TEST_CASE("the attention kernel repeats itself bit for bit and stands extreme logits", "[attention]") {
  at::Tensor q = at::randn({2, 2, 65, 32}), k = at::randn_like(q), v = at::randn_like(q), dout = at::randn_like(q);
  Run a = run(fused, q, k, v, dout, true, at::kFloat), b = run(fused, q, k, v, dout, true, at::kFloat);
  CHECK(at::equal(a.out, b.out));
  CHECK(at::equal(a.dk, b.dk));
  Run large = run(fused, q * 1e4, k, v, dout, true, at::kFloat);
  CHECK(large.out.isfinite().all().item<bool>());
  CHECK(large.dk.isfinite().all().item<bool>());
  q[0][0][3][0] = std::numeric_limits<float>::quiet_NaN();
  at::Tensor out = attention::fused_cpu(q, k, v, {true});
  CHECK(out[0][0][3].isnan().all().item<bool>());
  CHECK_FALSE(out[0][0][4].isnan().any().item<bool>());
}

TEST_CASE("the attention kernel leaves out keys behind each row's length", "[attention]") {
  at::manual_seed(6);
  const int64_t heads = 3, size = 32;
  CHECK(rc::check([&] {
    const int64_t batch = *rc::gen::inRange(1, 5), queries = *rc::gen::inRange(1, 40), keys = *rc::gen::inRange(1, 40);
    std::vector<int64_t> lengths;
    for (int64_t b = 0; b < batch; ++b) lengths.push_back(*rc::gen::inRange<int64_t>(0, keys + 1));
    at::Tensor q = at::randn({batch, heads, queries, size}) * 2, k = at::randn({batch, heads, keys, size});
    at::Tensor v = at::randn_like(k), dout = at::randn_like(q);
    // What stands behind a length must not matter, whatever it is.
    for (int64_t b = 0; b < batch; ++b)
      for (at::Tensor* t : {&k, &v}) t->select(0, b).slice(1, lengths[static_cast<size_t>(b)]).fill_(NAN);
    for (at::ScalarType type : {at::kFloat, at::kBFloat16}) {
      const Run fast = run(
          [&](const at::Tensor& a, const at::Tensor& b, const at::Tensor& c, bool) {
            return attention::fused_cpu(a, b, c, {false, 0, at::tensor(lengths, at::kLong)});
          },
          q, k, v, dout, false, type);
      for (int64_t b = 0; b < batch; ++b) {
        const int64_t n = lengths[static_cast<size_t>(b)];
        auto row = [&](const at::Tensor& t) { return t.narrow(0, b, 1); };
        RC_ASSERT(row(fast.dk).slice(2, n).eq(0).all().item<bool>());
        RC_ASSERT(row(fast.dv).slice(2, n).eq(0).all().item<bool>());
        if (n == 0) {
          RC_ASSERT(row(fast.out).eq(0).all().item<bool>() && row(fast.dq).eq(0).all().item<bool>());
          continue;
        }
        // The row by itself, without what is behind its length.
        const Run alone = run(fused, row(q), row(k).slice(2, 0, n), row(v).slice(2, 0, n), row(dout), false, type);
        RC_ASSERT(at::equal(row(fast.out), alone.out) && at::equal(row(fast.dq), alone.dq));
        RC_ASSERT(at::equal(row(fast.dk).slice(2, 0, n), alone.dk) && at::equal(row(fast.dv).slice(2, 0, n), alone.dv));
      }
    }
  }));
}

TEST_CASE("rows with fewer real keys, and with none, by the attention kernel", "[attention]") {
  at::manual_seed(9);
  for (int64_t queries : {1, 5, 8, 9, 40}) {
    const at::Tensor q = at::randn({4, 2, queries, 32}), k = at::randn({4, 2, 21, 32}), v = at::randn_like(k),
                     dout = at::randn_like(q);
    const at::Tensor lengths = at::tensor({21, 7, 0, 16}, at::kLong);
    auto leaf = [](const at::Tensor& t) { return t.detach().clone().requires_grad_(); };
    const at::Tensor mq = leaf(q), mk = leaf(k), mv = leaf(v);
    const at::Tensor out = attention::fused_cpu(mq, mk, mv, {false, 0, lengths});
    out.backward(dout);
    for (int64_t b = 0; b < 4; ++b) {
      INFO("row " << b << " of " << queries << " queries");
      const int64_t n = lengths[b].item<int64_t>();
      for (const at::Tensor& gradient : {mk.grad(), mv.grad()})
        CHECK(gradient[b].narrow(1, n, 21 - n).abs().sum().item<double>() == 0);
      if (n == 0) {
        CHECK(out[b].abs().sum().item<double>() == 0);
        CHECK(mq.grad()[b].abs().sum().item<double>() == 0);
        continue;
      }
      auto row = [&](const at::Tensor& t, int64_t length) { return t.narrow(0, b, 1).narrow(2, 0, length); };
      const Run alone = run(by_queries, row(q, queries), row(k, n), row(v, n), row(dout, queries).to(at::kDouble),
                            false, at::kDouble);
      CHECK(error(out[b], alone.out[0]) < 2e-6);
      c10::NoGradGuard no_gradient;  // another way of a few queries
      CHECK(error(attention::fused_cpu(q, k, v, {false, 0, lengths})[b], alone.out[0]) < 2e-6);
      CHECK(error(mq.grad()[b], alone.dq[0]) < 1e-5);
      CHECK(error(mk.grad()[b].narrow(1, 0, n), alone.dk[0]) < 1e-5);
      CHECK(error(mv.grad()[b].narrow(1, 0, n), alone.dv[0]) < 1e-5);
    }
  }
}

TEST_CASE("the attention kernel drops the probabilities that dropout would", "[attention][dropout]") {
  at::manual_seed(12);
  CHECK(rc::check([] {
    const int64_t batch = *rc::gen::inRange(1, 4), heads = *rc::gen::inRange(1, 4), size = 16 * *rc::gen::inRange(1, 4);
    const bool causal = *rc::gen::arbitrary<bool>();
    const int64_t queries = *rc::gen::inRange(1, 90);
    const int64_t keys = causal ? queries + *rc::gen::inRange(0, 40) : *rc::gen::inRange(1, 150);
    const nn::ForwardContext step{true, 3, *rc::gen::inRange(0U, 9U), *rc::gen::inRange(0, 5)};
    const double p = *rc::gen::element(0.1, 0.5, 0.9);
    std::vector<int64_t> lengths;
    if (!causal && *rc::gen::arbitrary<bool>())
      for (int64_t b = 0; b < batch; ++b) lengths.push_back(*rc::gen::inRange<int64_t>(1, keys + 1));
    const at::Tensor key_lengths = lengths.empty() ? at::Tensor() : at::tensor(lengths, at::kLong);
    const at::Tensor kept = nn::dropout(at::ones({batch, heads, queries, keys}), p, step, "place", 4);
    const auto by_equation = [&](const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, bool) {
      at::Tensor logits = at::matmul(q, k.transpose(2, 3)) / std::sqrt(static_cast<double>(size));
      if (causal)
        logits = logits.masked_fill(at::ones({queries, keys}, at::kBool).tril(keys - queries).logical_not(), -INFINITY);
      if (key_lengths.defined())
        logits = logits.masked_fill(at::arange(keys).ge(key_lengths.view({batch, 1, 1, 1})), -INFINITY);
      return at::matmul(at::softmax(logits, -1) * kept.to(at::kDouble), v);
    };
    const auto by_kernel = [&](const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, bool) {
      attention::FusedPolicy policy{causal, 0, key_lengths};
      policy.drops = nn::dropout_from(heads * queries * keys, p, step, "place", 4);
      return attention::fused_cpu(q, k, v, policy);
    };
    const at::Tensor q = at::randn({batch, heads, queries, size}) * 2, k = at::randn({batch, heads, keys, size});
    const at::Tensor v = at::randn_like(k), dout = at::randn_like(q);
    const Run exact = run(by_equation, q, k, v, dout.to(at::kDouble), causal, at::kDouble);
    const Run fast = run(by_kernel, q, k, v, dout, causal, at::kFloat);
    // What stays is 1 / (1 - p) times as large, and so are the numbers that cancel.
    const double unit = 1e-5 / (1 - p);
    RC_ASSERT(error(fast.out, exact.out) <= unit * (1 + size_of(exact.out)));
    RC_ASSERT(error(fast.dq, exact.dq) <= unit * (1 + size_of(exact.dq)));
    RC_ASSERT(error(fast.dk, exact.dk) <= unit * (1 + size_of(exact.dk)));
    RC_ASSERT(error(fast.dv, exact.dv) <= unit * (1 + size_of(exact.dv)));
    c10::NoGradGuard no_gradient;  // few queries go another way where nothing is dropped
    RC_ASSERT(error(by_kernel(q, k, v, causal), exact.out) <= unit * (1 + size_of(exact.out)));
  }));
}

TEST_CASE("a layer drops the same probabilities on both paths", "[attention][dropout]") {
  const nn::ForwardContext step{true, 5, 2, 3};
  for (const auto& [kind, lengths] : {std::pair{attention::Kind::decoder_self, false},
                                      {attention::Kind::encoder_self, true},
                                      {attention::Kind::encoder_self, false}}) {
    layers::Layer l("heads = 2\ndropout = 0.4\n", 32, 1, kind);
    REQUIRE(l.layer->describe_path(true) == "fused");
    const at::Tensor x = numbers::normal({3, 37, 32}, 8);
    attention::Mask mask;
    mask.causal = kind == attention::Kind::decoder_self;
    if (lengths) mask.key_lengths = at::tensor({37, 5, 20}, at::kLong);
    const auto outcome = [&](attention::Path path) {
      l.layer->set_path(path);
      l.parameters.zero_gradients();
      const at::Tensor y = l(x, x, mask, step);
      (y * numbers::normal(y.sizes().vec(), 9)).sum().backward();
      return std::pair{y.detach(), l["query.weight"].grad().clone()};
    };
    const auto fused = outcome(attention::Path::fused), composed = outcome(attention::Path::composed);
    CHECK(error(fused.first, composed.first) <= 1e-5 * size_of(composed.first));
    CHECK(error(fused.second, composed.second) <= 1e-5 * size_of(composed.second));
  }
  // The kernel adds no mask: refused where the fused path is asked for, composed otherwise.
  layers::Layer l("heads = 2\ndropout = 0.4\n", 32);
  attention::Mask mask;
  mask.causal = true;
  mask.additive = numbers::normal({20, 20}, 9);
  const at::Tensor x = numbers::normal({2, 20, 32}, 8);
  const at::Tensor y = l(x, x, mask, step);
  l.layer->set_path(attention::Path::composed);
  CHECK(at::equal(l(x, x, mask, step), y));
  l.layer->set_path(attention::Path::fused);
  CHECK(refusal([&] { l(x, x, mask, step); }).find("an additive mask") != std::string::npos);
  CHECK(layers::Layer("heads = 4\ndropout = 0.4\n", 32).layer->describe_path(true).find("head_size 8") !=
        std::string::npos);
}

TEST_CASE("the attention kernel behind a memory sees it all, and its own positions as they come", "[attention]") {
  at::manual_seed(14);
  for (const auto& [queries, memory] : {std::pair<int64_t, int64_t>{1, 6}, {5, 1}, {33, 40}, {64, 100}}) {
    INFO(queries << " queries behind " << memory);
    const at::Tensor q = at::randn({2, 3, queries, 32}), k = at::randn({2, 3, queries + memory, 32});
    const at::Tensor v = at::randn_like(k), dout = at::randn_like(q);
    const Run exact = run(by_queries, q, k, v, dout.to(at::kDouble), true, at::kDouble);
    const Run fast = run(fused, q, k, v, dout, true, at::kFloat);
    CHECK(error(fast.out, exact.out) <= 2e-6);
    CHECK(error(fast.dq, exact.dq) <= 1e-5);
    CHECK(error(fast.dk, exact.dk) <= 1e-5);
    CHECK(error(fast.dv, exact.dv) <= 1e-5);
  }
}
