// The kernel of attention with mixed heads against the equations in double precision: random shapes, masks, matrices
// and dropouts, forward and every gradient; and layers on both paths.
#include "attention/fused/head_mixing_cpu.h"

#include <ATen/Parallel.h>
#include <c10/core/GradMode.h>
#include <rapidcheck.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <limits>
#include <vector>

#include "attention/fused/fused_cpu.h"
#include "attention/fused/split_projection.h"
#include "fixtures/aten.h"
#include "fixtures/errors.h"
#include "fixtures/layers.h"
#include "fixtures/numbers.h"
#include "fixtures/peak_memory.h"
#include "fixtures/skip.h"
#include "fixtures/status.h"
#include "nn/ops.h"
#include "oracle/fused_policy.h"

using namespace mh;
using numbers::fault_beside_composed;
using namespace reference::policy;

namespace {

at::Tensor by_kernel(const Inputs& x, const Tensors& leaves) {
  return attention::head_mixing_cpu(leaves[kQ], leaves[kK], leaves[kV], leaves[kM], x.policy);
}

// The result and the gradients of q, k, v and m.
Tensors fused(const Inputs& x, at::ScalarType type = at::kFloat) { return results(x, type, type, at::kCPU, by_kernel); }

Tensors beside(const Inputs& x, at::ScalarType type = at::kFloat) { return results(x, type, type, at::kCPU, composed); }

Tensors exact(const Inputs& x, at::ScalarType type = at::kFloat) {
  return results(x, type, at::kDouble, at::kCPU, composed);
}

bool same(const Tensors& a, const Tensors& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const at::Tensor& x, const at::Tensor& y) { return at::equal(x, y); });
}

struct Sizes {
  int64_t batch, in, out, queries, keys, dk, dv;
  bool causal, by_query;
};

Inputs drawn(const Sizes& z) {
  Inputs x{{at::randn({z.batch, z.in, z.queries, z.dk}) * 2,
            at::randn({z.batch, z.in, z.keys, z.dk}),
            at::randn({z.batch, z.out, z.keys, z.dv}),
            z.by_query ? at::randn({z.batch, z.queries, z.in, z.out}) : at::randn({z.in, z.out}),
            {},
            {},
            {},
            {}},
           at::randn({z.batch, z.out, z.queries, z.dv}),
           {},
           {}};
  x.policy.causal = z.causal;
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
      x.policy.key_lengths = at::tensor(lengths, at::kLong);
    }
    if (pick(0, 2) == 0) {
      const nn::ForwardContext step{true, 3, *rc::gen::inRange(0U, 9U), pick(0, 5)};
      const double p = *rc::gen::element(0.1, 0.5, 0.9);
      x.policy.dropout_before_mixing = pick(0, 1) == 1;
      const int64_t heads = x.policy.dropout_before_mixing ? z.in : z.out;
      x.kept = nn::dropout(at::ones({z.batch, heads, z.queries, z.keys}), p, step, "place", 4);
      x.policy.dropout = nn::dropout_from(heads * z.queries * z.keys, p, step, "place", 4);
    }
    for (at::ScalarType type : {at::kFloat, at::kBFloat16}) {
      const Tensors right = exact(x, type), other = beside(x, type), sizes = without_signs(x, type);
      const std::string fault = fault_beside_composed(fused(x, type), other, right, type, sizes);
      RC_LOG() << fault << "\n";
      RC_ASSERT(fault.empty());
      c10::NoGradGuard no_gradient;  // a few queries go another way
      RC_ASSERT(fault_beside_composed({by_kernel(x, leaves_of(x, type, type, at::kCPU))}, {other[0]}, {right[0]}, type,
                                      {sizes[0]})
                    .empty());
    }
  }));
}

TEST_CASE("one head mixed with itself is plain attention", "[attention][mixed]") {
  at::manual_seed(32);
  for (bool causal : {false, true}) {
    Inputs x = drawn({2, 4, 4, 70, 70, 32, 32, causal, false});
    x.given[kM] = at::eye(4);
    const Tensors plain = results(x, at::kFloat, at::kFloat, at::kCPU, [&](const Inputs&, const Tensors& leaves) {
      return attention::fused_cpu(leaves[kQ], leaves[kK], leaves[kV], {causal}) + 0 * leaves[kM].sum();
    });
    auto first = [](Tensors of) {  // without the matrix's gradient
      of.pop_back();
      return of;
    };
    const Tensors right = first(exact(x)), other = first(beside(x)), sizes = first(without_signs(x, at::kFloat));
    CHECK(fault_beside_composed(first(fused(x)), other, right, at::kFloat, sizes) == "");
    CHECK(fault_beside_composed(first(plain), other, right, at::kFloat, sizes) == "");
  }
}

TEST_CASE("attention with mixed heads has the same bits for any number of threads", "[attention][mixed]") {
  at::manual_seed(33);
  const int threads = at::get_num_threads();
  for (int64_t batch : {1, 3, 9}) {
    const Inputs x = drawn({batch, 3, 3, 150, 150, 16, 16, true, batch == 3});
    std::vector<Tensors> runs;
    for (int n : {1, 2, 5}) {
      at::set_num_threads(n);
      runs.push_back(fused(x));
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
    x.policy.key_lengths = at::tensor({140, 129, 0, 16}, at::kLong);
    for (int64_t b = 0; b < 4; ++b)
      for (at::Tensor* t : {&x.given[kK], &x.given[kV]})
        t->select(0, b).slice(1, x.policy.key_lengths[b].item<int64_t>()).fill_(NAN);
    const Tensors all = fused(x);
    const at::Tensor &out = all[0], &dq = all[1], &dk = all[2], &dv = all[3];
    at::Tensor few;
    {
      c10::NoGradGuard no_gradient;
      few = by_kernel(x, x.given);
    }
    for (int64_t b = 0; b < 4; ++b) {
      INFO("row " << b << ", " << queries << " queries");
      const int64_t n = x.policy.key_lengths[b].item<int64_t>();
      CHECK(dk[b].slice(1, n).eq(0).all().item<bool>());
      CHECK(dv[b].slice(1, n).eq(0).all().item<bool>());
      if (n == 0) {
        for (const at::Tensor& t : {out, few, dq}) CHECK(t[b].eq(0).all().item<bool>());
        continue;
      }
      auto row = [&](const at::Tensor& t) { return t.narrow(0, b, 1); };
      const Inputs own{{row(x.given[kQ]),
                        row(x.given[kK]).slice(2, 0, n),
                        row(x.given[kV]).slice(2, 0, n),
                        x.given[kM],
                        {},
                        {},
                        {},
                        {}},
                       row(x.dout),
                       {},
                       {}};
      Tensors right = exact(own), other = beside(own);
      right.pop_back(), other.pop_back();  // the matrix's gradient, which is of all rows
      CHECK(fault_beside_composed({row(out), row(dq), row(dk).slice(2, 0, n), row(dv).slice(2, 0, n)}, other, right,
                                  at::kFloat) == "");
      CHECK(fault_beside_composed({row(few)}, {other[0]}, {right[0]}, at::kFloat) == "");
    }
  }
}

TEST_CASE("attention with mixed heads reads a joint projection and gives its gradient in one piece",
          "[attention][mixed]") {
  at::manual_seed(35);
  const int64_t batch = 2, length = 40, heads = 3, values = 2, size = 16, value_size = 8;
  const at::Tensor joint = at::randn({batch, length, 2 * heads * size + values * value_size}),
                   m = at::randn({heads, values}), dout = at::randn({batch, values, length, value_size});
  const auto gradient = [&](at::ScalarType type, const auto& attend) {
    const at::Tensor leaf = joint.to(type).detach().clone().requires_grad_();
    const auto parts = attention::split_projection(leaf, heads, size, values, value_size);
    Inputs x;
    x.policy.causal = true;
    attend(x, Tensors{parts[0], parts[1], parts[2], m.to(type), {}, {}, {}, {}}).backward(dout.to(type));
    return leaf.grad();
  };
  CHECK(fault_beside_composed({gradient(at::kFloat, by_kernel)}, {gradient(at::kFloat, composed)},
                              {gradient(at::kDouble, composed)}, at::kFloat) == "");
}

TEST_CASE("attention with mixed heads stands extreme logits, and a NaN stays with its query", "[attention][mixed]") {
  at::manual_seed(36);
  Inputs x = drawn({2, 2, 2, 65, 65, 32, 32, true, false});
  x.given[kQ].mul_(1e4);
  for (const at::Tensor& t : fused(x)) CHECK(t.isfinite().all().item<bool>());
  x.given[kQ][0][0][3][0] = std::numeric_limits<float>::quiet_NaN();
  const at::Tensor out = by_kernel(x, x.given);
  CHECK(out[0][1][3].isnan().all().item<bool>());  // every head is mixed with the one that has it
  CHECK_FALSE(out[0][1][4].isnan().any().item<bool>());
  CHECK_FALSE(out[1].isnan().any().item<bool>());
}

TEST_CASE("attention with mixed heads holds nothing of the size queries x keys", "[attention][mixed]") {
  if (!reset_peak()) SKIP("the peak of memory cannot be reset here");
  const int64_t n = 2048, heads = 8, size = 16;
  Inputs x = drawn({1, heads, heads, n, n, size, size, true, false});
  fused(x);  // what is allocated once
  reset_peak();
  const int64_t before = peak_kb();
  fused(x);
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
    for (attention::AttentionKind kind :
         {attention::AttentionKind::decoder_self, attention::AttentionKind::encoder_self}) {
      INFO(mixer << " in " << name_of(kind));
      const bool causal = kind == attention::AttentionKind::decoder_self;
      layers::Layer l(str("heads = 4\nhead_size = 6\ndropout = 0.3\n", mixer), 10, 1, kind);
      l.shake(4);
      REQUIRE(l.layer->describe_path(true) == "fused");
      const at::Tensor x = numbers::normal({3, 37, 10}, 8);
      attention::Mask mask;
      mask.causal = causal;
      if (!causal) mask.key_lengths = at::tensor({37, 5, 20}, at::kLong);
      for (bool training : {false, true}) {
        const nn::ForwardContext step{training, 5, 2, 3};
        const auto [fused, composed, exact, sizes] =
            layers::results_of_paths(l, x, [&](const at::Tensor& in) { return l(in, in, mask, step); });
        CHECK(fault_beside_composed(fused, composed, exact, at::kFloat, sizes) == "");
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
