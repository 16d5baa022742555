// The attention kernel against loops in double precision, and against the composed path's own error.
#include "attention/fused/fused_cpu.h"

#include <c10/core/GradMode.h>
#include <rapidcheck.h>

#include <catch2/catch.hpp>
#include <cmath>
#include <vector>

#include "attention/fused/split_projection.h"
#include "fixtures/aten.h"
#include "fixtures/errors.h"
#include "fixtures/layers.h"
#include "fixtures/numbers.h"
#include "fixtures/status.h"
#include "nn/ops.h"
#include "oracle/fused_policy.h"

using namespace mh;
using numbers::error;
using numbers::fault_beside_composed;

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
  const int64_t queries = q.size(2), keys = k.size(2);
  if (causal)
    logits = logits.masked_fill(at::ones({queries, keys}, at::kBool).tril(keys - queries).logical_not(), -INFINITY);
  return at::matmul(at::softmax(logits, -1).to(v.scalar_type()), v);
}

at::Tensor fused(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, bool causal) {
  return attention::fused_cpu(q, k, v, {causal});
}

struct Run {
  at::Tensor out, dq, dk, dv;
  std::vector<at::Tensor> all() const { return {out, dq, dk, dv}; }
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
      CHECK(fault_beside_composed(fast.all(), plain.all(), exact.all(), type) == "");
    }
  }
}

TEST_CASE("the attention kernel reads strided heads of a joint projection and gives its gradient", "[attention]") {
  const int64_t batch = 2, length = 40, heads = 3, size = 16;
  at::Tensor joint = at::randn({batch, length, 3 * heads * size}), dout = at::randn({batch, heads, length, size});
  at::Tensor a = joint.clone().requires_grad_();
  auto parts = attention::split_projection(a, heads, size, heads, size);
  attention::fused_cpu(parts[0], parts[1], parts[2], {true}).backward(dout);
  auto gradient = [&](const auto& f, at::ScalarType type) {
    at::Tensor b = joint.to(type).detach().clone().requires_grad_();
    auto part = [&](int64_t i) {
      return b.narrow(2, i * heads * size, heads * size).view({batch, length, heads, size}).transpose(1, 2);
    };
    f(part(0), part(1), part(2), true).backward(dout.to(type));
    return b.grad();
  };
  CHECK(fault_beside_composed({a.grad()}, {gradient(composed, at::kFloat)}, {gradient(by_queries, at::kDouble)},
                              at::kFloat) == "");
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
      const auto alone = [&](const auto& f, at::ScalarType type) {
        return run(f, row(q, queries), row(k, n), row(v, n), row(dout, queries), false, type);
      };
      const Run exact = alone(by_queries, at::kDouble), plain = alone(composed, at::kFloat);
      CHECK(fault_beside_composed({row(out, queries), row(mq.grad(), queries), row(mk.grad(), n), row(mv.grad(), n)},
                                  plain.all(), exact.all(), at::kFloat) == "");
      c10::NoGradGuard no_gradient;  // another way of a few queries
      CHECK(fault_beside_composed({row(attention::fused_cpu(q, k, v, {false, 0, lengths}), queries)}, {plain.out},
                                  {exact.out}, at::kFloat) == "");
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
    using namespace reference::policy;
    Inputs x;
    x.given = {at::randn({batch, heads, queries, size}) * 2, at::randn({batch, heads, keys, size}),
               at::randn({batch, heads, keys, size})};
    x.given.resize(kR + 1);
    x.dout = at::randn({batch, heads, queries, size});
    x.kept = nn::dropout(at::ones({batch, heads, queries, keys}), p, step, "place", 4);
    x.policy.causal = causal;
    if (!causal && *rc::gen::arbitrary<bool>()) x.policy.key_lengths = at::randint(1, keys + 1, {batch}, at::kLong);
    x.policy.dropout = nn::dropout_from(heads * queries * keys, p, step, "place", 4);
    const auto by_kernel = [](const Inputs& given, const Tensors& t) {
      return attention::fused_cpu(t[kQ], t[kK], t[kV], given.policy);
    };
    const auto in = [&](at::ScalarType type, const auto& attend) {
      return results(x, at::kFloat, type, at::kCPU, attend);
    };
    const Tensors exact = in(at::kDouble, reference::policy::composed),
                  plain = in(at::kFloat, reference::policy::composed), sizes = without_signs(x, at::kFloat);
    const std::string fault = fault_beside_composed(in(at::kFloat, by_kernel), plain, exact, at::kFloat, sizes);
    RC_LOG() << fault << "\n";
    RC_ASSERT(fault.empty());
    c10::NoGradGuard no_gradient;  // few queries go another way where nothing is dropped
    RC_ASSERT(fault_beside_composed({by_kernel(x, x.given)}, {plain[0]}, {exact[0]}, at::kFloat, {sizes[0]}).empty());
  }));
}

TEST_CASE("a layer drops the same probabilities on both paths", "[attention][dropout]") {
  const nn::ForwardContext step{true, 5, 2, 3};
  for (const auto& [kind, lengths] : {std::pair{attention::AttentionKind::decoder_self, false},
                                      {attention::AttentionKind::encoder_self, true},
                                      {attention::AttentionKind::encoder_self, false}}) {
    layers::Layer l("heads = 2\ndropout = 0.4\n", 32, 1, kind);
    REQUIRE(l.layer->describe_path(true) == "fused");
    const at::Tensor x = numbers::normal({3, 37, 32}, 8);
    attention::Mask mask;
    mask.causal = kind == attention::AttentionKind::decoder_self;
    if (lengths) mask.key_lengths = at::tensor({37, 5, 20}, at::kLong);
    const auto [fused, composed, exact, sizes] =
        layers::results_of_paths(l, x, [&](const at::Tensor& in) { return l(in, in, mask, step); });
    CHECK(fault_beside_composed(fused, composed, exact, at::kFloat, sizes) == "");
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
    const Run exact = run(by_queries, q, k, v, dout, true, at::kDouble),
              fast = run(fused, q, k, v, dout, true, at::kFloat),
              plain = run(composed, q, k, v, dout, true, at::kFloat);
    CHECK(fault_beside_composed(fast.all(), plain.all(), exact.all(), at::kFloat) == "");
  }
}
