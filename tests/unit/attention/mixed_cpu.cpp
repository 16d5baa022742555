// The kernel of attention with mixed heads against the equations in double precision: random shapes, masks, matrices
// and dropouts, forward and every gradient; and layers on both paths.
#include "attention/fused/mixed_cpu.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <c10/core/GradMode.h>
#include <rapidcheck.h>

#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <vector>

#include "attention/fused/fused_cpu.h"
#include "fixtures/layers.h"
#include "fixtures/numbers.h"
#include "fixtures/peak_memory.h"
#include "fixtures/skip.h"
#include "fixtures/status.h"
#include "nn/ops.h"

using namespace mh;
using attention::FusedPolicy;
using numbers::error;
using numbers::size_of;

namespace {

struct Inputs {
  at::Tensor q, k, v, m, dout;
  FusedPolicy mask;
  at::Tensor kept;  // (B, h or hv, Tq, Tk), or undefined
  bool before = false;
};

// out_i = (keep ∘ Σ_j m[j, i] (keep ∘) softmax(q_j k_jᵀ / √dk)) v_i by operations on tensors of any type.
at::Tensor by_equation(const Inputs& x, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                       const at::Tensor& m) {
  const int64_t queries = q.size(2), keys = k.size(2);
  at::Tensor logits = at::matmul(q, k.transpose(2, 3)) / std::sqrt(static_cast<double>(q.size(3)));
  at::Tensor hidden = at::zeros({1, 1, queries, keys}, at::kBool);
  if (x.mask.causal) hidden = at::ones({queries, keys}, at::kBool).tril(keys - queries).logical_not();
  if (x.mask.key_lengths.defined()) hidden = at::arange(keys).ge(x.mask.key_lengths.view({-1, 1, 1, 1}));
  at::Tensor p = at::softmax(logits.masked_fill(hidden, -INFINITY), -1).masked_fill(hidden, 0);
  if (x.kept.defined() && x.before) p = p * x.kept.to(p.scalar_type());
  p = at::einsum(m.dim() == 4 ? "bjts,btji->bits" : "bjts,ji->bits", {p, m});
  if (x.kept.defined() && !x.before) p = p * x.kept.to(p.scalar_type());
  return at::matmul(p, v);
}

struct Run {
  at::Tensor out, dq, dk, dv, dm;
};

template <class F>
Run run(const Inputs& x, at::ScalarType type, const F& f) {
  auto leaf = [&](const at::Tensor& t) { return t.to(type).detach().clone().requires_grad_(); };
  const at::Tensor q = leaf(x.q), k = leaf(x.k), v = leaf(x.v);
  // Weights of the mixing stay fp32 beside bf16.
  const at::Tensor m = x.m.to(type == at::kDouble ? at::kDouble : at::kFloat).detach().clone().requires_grad_();
  const at::Tensor out = f(q, k, v, m);
  out.backward(x.dout.to(type));
  return {out.detach(), q.grad(), k.grad(), v.grad(), m.grad()};
}

Run exact(const Inputs& given, at::ScalarType rounded = at::kFloat) {
  Inputs x = given;
  for (at::Tensor* t : {&x.q, &x.k, &x.v, &x.dout}) *t = t->to(rounded);
  return run(x, at::kDouble, [&](const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& m) {
    return by_equation(x, q, k, v, m);
  });
}

Run by_kernel(const Inputs& x, at::ScalarType type) {
  return run(x, type, [&](const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& m) {
    return attention::mixed_cpu(q, k, v, m, x.mask);
  });
}

bool same(const Run& a, const Run& b) {
  return at::equal(a.out, b.out) && at::equal(a.dq, b.dq) && at::equal(a.dk, b.dk) && at::equal(a.dv, b.dv) &&
         at::equal(a.dm, b.dm);
}

struct Sizes {
  int64_t batch, in, out, queries, keys, dk, dv;
  bool causal, by_query;
};

Inputs drawn(const Sizes& z) {
  Inputs x;
  x.q = at::randn({z.batch, z.in, z.queries, z.dk}) * 2;
  x.k = at::randn({z.batch, z.in, z.keys, z.dk});
  x.v = at::randn({z.batch, z.out, z.keys, z.dv});
  x.m = z.by_query ? at::randn({z.batch, z.queries, z.in, z.out}) : at::randn({z.in, z.out});
  x.dout = at::randn({z.batch, z.out, z.queries, z.dv});
  x.mask.causal = z.causal;
  return x;
}

}  // namespace

TEST_CASE("attention with mixed heads equals the equations over random shapes", "[attention][mixed]") {
  at::manual_seed(31);
  CHECK(rc::check([] {
    const auto pick = [](int64_t low, int64_t high) { return *rc::gen::inRange<int64_t>(low, high + 1); };
    Sizes z{pick(1, 3),  pick(1, 9),  pick(1, 9),      pick(1, 90),    0,
            pick(1, 40), pick(1, 40), pick(0, 1) == 1, pick(0, 1) == 1};
    z.keys = z.causal ? z.queries + pick(0, 150) : pick(1, 300);
    Inputs x = drawn(z);
    if (!z.causal && pick(0, 1) == 1) {
      std::vector<int64_t> lengths;
      for (int64_t b = 0; b < z.batch; ++b) lengths.push_back(pick(0, z.keys));
      x.mask.key_lengths = at::tensor(lengths, at::kLong);
    }
    double p = 0;
    if (pick(0, 2) == 0) {
      const nn::ForwardContext step{true, 3, *rc::gen::inRange(0U, 9U), pick(0, 5)};
      p = *rc::gen::element(0.1, 0.5, 0.9);
      x.before = pick(0, 1) == 1;
      const int64_t heads = x.before ? z.in : z.out;
      x.kept = nn::dropout(at::ones({z.batch, heads, z.queries, z.keys}), p, step, "place", 4);
      x.mask.drops = nn::dropout_from(heads * z.queries * z.keys, p, step, "place", 4);
      x.mask.dropped_before_mixing = x.before;
    }
    for (at::ScalarType type : {at::kFloat, at::kBFloat16}) {
      const Run truth = exact(x, type), fast = by_kernel(x, type);
      // Of bf16 what is given is exact; what comes out is rounded. What a dropout leaves is 1 / (1 - p) times as large,
      // and so are the numbers that cancel.
      const double unit = (type == at::kFloat ? 2e-5 : 1e-2) / (1 - p);
      const auto within = [&](const at::Tensor& mine, const at::Tensor& right) {
        return error(mine, right) <= unit * (1 + size_of(right));
      };
      RC_ASSERT(within(fast.out, truth.out));
      RC_ASSERT(within(fast.dq, truth.dq));
      RC_ASSERT(within(fast.dk, truth.dk));
      RC_ASSERT(within(fast.dv, truth.dv));
      RC_ASSERT(within(fast.dm, truth.dm));
      c10::NoGradGuard no_gradient;  // a few queries go another way
      RC_ASSERT(within(attention::mixed_cpu(x.q.to(type), x.k.to(type), x.v.to(type), x.m, x.mask), truth.out));
    }
  }));
}

TEST_CASE("one head mixed with itself is plain attention", "[attention][mixed]") {
  at::manual_seed(32);
  for (bool causal : {false, true}) {
    Inputs x = drawn({2, 4, 4, 70, 70, 32, 32, causal, false});
    x.m = at::eye(4);
    const Run mixed = by_kernel(x, at::kFloat);
    const Run plain =
        run(x, at::kFloat, [&](const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& m) {
          return attention::fused_cpu(q, k, v, {causal}) + 0 * m.sum();
        });
    CHECK(error(mixed.out, plain.out) <= 2e-6 * size_of(plain.out));
    CHECK(error(mixed.dq, plain.dq) <= 1e-5 * size_of(plain.dq));
    CHECK(error(mixed.dk, plain.dk) <= 1e-5 * size_of(plain.dk));
    CHECK(error(mixed.dv, plain.dv) <= 1e-5 * size_of(plain.dv));
  }
}

TEST_CASE("attention with mixed heads has the same bits for any number of threads", "[attention][mixed]") {
  at::manual_seed(33);
  const int threads = at::get_num_threads();
  for (int64_t batch : {1, 3, 9}) {
    const Inputs x = drawn({batch, 3, 3, 150, 150, 16, 16, true, batch == 3});
    std::vector<Run> runs;
    for (int n : {1, 2, 5}) {
      at::set_num_threads(n);
      runs.push_back(by_kernel(x, at::kFloat));
    }
    at::set_num_threads(threads);
    CHECK(same(runs[0], runs[1]));
    CHECK(same(runs[0], runs[2]));
  }
}

TEST_CASE("a row of attention with mixed heads is as if it were alone, whatever stands behind its keys",
          "[attention][mixed]") {
  at::manual_seed(34);
  for (int64_t queries : {1, 5, 40}) {
    Inputs x = drawn({4, 3, 2, queries, 140, 16, 24, false, false});
    x.mask.key_lengths = at::tensor({140, 129, 0, 16}, at::kLong);
    for (int64_t b = 0; b < 4; ++b)
      for (at::Tensor* t : {&x.k, &x.v}) t->select(0, b).slice(1, x.mask.key_lengths[b].item<int64_t>()).fill_(NAN);
    const Run all = by_kernel(x, at::kFloat);
    at::Tensor few;
    {
      c10::NoGradGuard no_gradient;
      few = attention::mixed_cpu(x.q, x.k, x.v, x.m, x.mask);
    }
    for (int64_t b = 0; b < 4; ++b) {
      INFO("row " << b << ", " << queries << " queries");
      const int64_t n = x.mask.key_lengths[b].item<int64_t>();
      CHECK(all.dk[b].slice(1, n).eq(0).all().item<bool>());
      CHECK(all.dv[b].slice(1, n).eq(0).all().item<bool>());
      if (n == 0) {
        for (const at::Tensor& t : {all.out, few, all.dq}) CHECK(t[b].eq(0).all().item<bool>());
        continue;
      }
      Inputs own;
      auto row = [&](const at::Tensor& t) { return t.narrow(0, b, 1); };
      own.q = row(x.q), own.k = row(x.k).slice(2, 0, n), own.v = row(x.v).slice(2, 0, n), own.dout = row(x.dout);
      own.m = x.m;
      const Run truth = exact(own);
      CHECK(error(row(all.out), truth.out) <= 1e-5 * (1 + size_of(truth.out)));
      CHECK(error(row(few), truth.out) <= 1e-5 * (1 + size_of(truth.out)));
      CHECK(error(row(all.dq), truth.dq) <= 2e-5 * (1 + size_of(truth.dq)));
      CHECK(error(row(all.dk).slice(2, 0, n), truth.dk) <= 2e-5 * (1 + size_of(truth.dk)));
      CHECK(error(row(all.dv).slice(2, 0, n), truth.dv) <= 2e-5 * (1 + size_of(truth.dv)));
    }
  }
}

TEST_CASE("attention with mixed heads reads a joint projection and gives its gradient in one piece",
          "[attention][mixed]") {
  at::manual_seed(35);
  const int64_t batch = 2, length = 40, heads = 3, values = 2, size = 16, value_size = 8;
  const at::Tensor joint = at::randn({batch, length, 2 * heads * size + values * value_size}),
                   m = at::randn({heads, values}), dout = at::randn({batch, values, length, value_size});
  const at::Tensor a = joint.clone().requires_grad_(), b = joint.to(at::kDouble).requires_grad_();
  auto parts = attention::split_projection(a, heads, size, values, value_size);
  attention::mixed_cpu(parts[0], parts[1], parts[2], m, {true}).backward(dout);
  auto truth = attention::split_projection(b, heads, size, values, value_size);
  Inputs x;
  x.mask.causal = true;
  by_equation(x, truth[0], truth[1], truth[2], m.to(at::kDouble)).backward(dout.to(at::kDouble));
  CHECK(error(a.grad(), b.grad()) <= 1e-5 * size_of(b.grad()));
}

TEST_CASE("attention with mixed heads stands extreme logits, and a NaN stays with its query", "[attention][mixed]") {
  at::manual_seed(36);
  Inputs x = drawn({2, 2, 2, 65, 65, 32, 32, true, false});
  x.q = x.q * 1e4;
  const Run large = by_kernel(x, at::kFloat);
  for (const at::Tensor& t : {large.out, large.dq, large.dk, large.dv, large.dm})
    CHECK(t.isfinite().all().item<bool>());
  x.q[0][0][3][0] = std::numeric_limits<float>::quiet_NaN();
  const at::Tensor out = attention::mixed_cpu(x.q, x.k, x.v, x.m, x.mask);
  CHECK(out[0][1][3].isnan().all().item<bool>());  // every head is mixed with the one that has it
  CHECK_FALSE(out[0][1][4].isnan().any().item<bool>());
  CHECK_FALSE(out[1].isnan().any().item<bool>());
}

TEST_CASE("attention with mixed heads holds nothing of the size queries x keys", "[attention][mixed]") {
  if (!reset_peak()) SKIP("the peak of memory cannot be reset here");
  const int64_t n = 2048, heads = 8, size = 16;
  Inputs x = drawn({1, heads, heads, n, n, size, size, true, false});
  by_kernel(x, at::kFloat);  // what is allocated once
  reset_peak();
  const int64_t before = peak_kb();
  by_kernel(x, at::kFloat);
  // The probabilities of all heads would take 134 MB, and composed operations hold them several times.
  CHECK(peak_kb() - before < 60 * 1024);
}

TEST_CASE("layers that mix probabilities are the same on both paths, dropout and gradients included",
          "[attention][mixed]") {
  for (const char* mixer :
       {"mixer = 'mixhead-a'", "mixer = 'mixhead-b'", "mixer = 'random-normal'", "mixer = 'mean'",
        "mixer = 'differential'", "mixer = 'mixhead-b'\ncombiner = 'alphas'",
        "mixer = 'mixhead-a'\npairing = 'cross-head'", "mixer = 'mixhead-a'\n[attention.mixhead-a]\ndropout = 'before'",
        "mixer = 'talking-heads'\n[attention.talking-heads]\npre = false"})
    for (attention::Kind kind : {attention::Kind::decoder_self, attention::Kind::encoder_self}) {
      INFO(mixer << " in " << name_of(kind));
      const bool causal = kind == attention::Kind::decoder_self;
      layers::Layer l(str("heads = 4\nhead_size = 6\ndropout = 0.3\n", mixer), 10, 1, kind);
      l.shake(4);
      REQUIRE(l.layer->describe_path(true) == "fused");
      const at::Tensor x = numbers::normal({3, 37, 10}, 8);
      attention::Mask mask;
      mask.causal = causal;
      if (!causal) mask.key_lengths = at::tensor({37, 5, 20}, at::kLong);
      for (bool training : {false, true}) {
        const nn::ForwardContext step{training, 5, 2, 3};
        std::vector<std::vector<at::Tensor>> found;
        for (attention::Path path : {attention::Path::fused, attention::Path::composed}) {
          l.layer->set_path(path);
          l.parameters.zero_gradients();
          const at::Tensor y = l(x, x, mask, step);
          (y * numbers::normal(y.sizes().vec(), 9)).sum().backward();
          found.push_back({y.detach()});
          for (const auto& p : l.parameters.all())
            if (p.traits().trainable) found.back().push_back(p.master().grad().clone());
        }
        // The true gradient of a key's bias is 0: what is found of it is the rounding of larger numbers.
        double largest = 0;
        for (const at::Tensor& t : found[1]) largest = std::max(largest, size_of(t));
        for (size_t i = 0; i < found[0].size(); ++i)
          CHECK(error(found[0][i], found[1][i]) <= 1e-6 * largest + 2e-5 * size_of(found[1][i]));
      }
    }
}

TEST_CASE("what the kernel of mixed heads cannot take is named", "[attention][mixed]") {
  const auto path_of = [](const std::string& toml) {
    return layers::Layer("heads = 2\n" + toml, 32).layer->describe_path(true);
  };
  CHECK(path_of("mixer = 'mixhead-a'\n[attention.mixhead-a]\non = 'logits'").find("it mixes logits") !=
        std::string::npos);
  CHECK(path_of("mixer = 'talking-heads'").find("it mixes logits") != std::string::npos);
  CHECK(path_of("mixer = 'mixhead-a'\nnormaliser = 'sigsoftmax'\nscore = 'relative'") == "fused");
  CHECK(path_of("mixer = 'mixhead-a'\nvalue_size = 3") == "fused");
  CHECK(path_of("value_size = 3").find("value_size 3 differs") != std::string::npos);
  layers::Layer l("heads = 2\nmixer = 'mixhead-b'\n", 32);
  attention::Mask mask;
  mask.causal = true;
  mask.additive = numbers::normal({20, 20}, 9);
  const at::Tensor x = numbers::normal({2, 20, 32}, 8);
  const at::Tensor y = l(x, x, mask);
  l.layer->set_path(attention::Path::composed);
  CHECK(at::equal(l(x, x, mask), y));
  l.layer->set_path(attention::Path::fused);
  CHECK(refusal([&] { l(x, x, mask); }).find("an additive mask") != std::string::npos);
}
