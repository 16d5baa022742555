// Combiners that mix or weigh the heads' outputs.
#include <c10/core/GradMode.h>
#include <rapidcheck.h>

#include <catch2/catch.hpp>

#include "analysis/fold.h"
#include "attention/methods/hard_concrete/hard_concrete.h"
#include "fixtures/layers.h"

using namespace mh;
using namespace mh::attention;
using namespace mh::nn;
using layers::by_heads;
using layers::Layer;
using layers::Watch;
using numbers::close;
using numbers::normal;

namespace {

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

}  // namespace

TEST_CASE("alphas fold into the output projection", "[combiners]") {
  c10::NoGradGuard no_gradient;
  CHECK(rc::check([] {
    const auto pick = [](int64_t low, int64_t high) { return *rc::gen::inRange<int64_t>(low, high + 1); };
    const auto seed = static_cast<uint64_t>(pick(1, 1000000));
    const int64_t h = pick(1, 6), d = pick(1, 9);
    const std::string sizes = str("heads = ", h, "\nhead_size = 3\nvalue_size = ", pick(1, 5), "\n");
    Layer l(sizes + "combiner = 'alphas'", d, seed), plain(sizes, d, seed);
    l.set("combiner.alpha", normal({h, h}, seed));
    plain.take(l);
    plain.set("output.weight", analysis::fold(l["combiner.alpha"].t(), l["output.weight"]));
    const at::Tensor x = normal({2, 4, d}, seed + 1);
    Mask mask;
    mask.causal = true;
    RC_ASSERT(at::allclose(l(x, x, mask), plain(x, x, mask), 1e-3, 1e-4));
  }));
  // (αᵀ ⊗ I) Wᵀ, as the paper writes it.
  const at::Tensor alpha = normal({3, 3}, 1), w = normal({5, 6}, 2);
  CHECK(close(analysis::fold(alpha.t(), w), at::matmul(at::kron(alpha.t().contiguous(), at::eye(2)), w.t()).t()));
}

TEST_CASE("a permutation as alphas permutes blocks of the output projection", "[combiners]") {
  c10::NoGradGuard no_gradient;
  Layer l("heads = 3\ncombiner = 'alphas'", 6, 5), plain("heads = 3", 6, 5);
  const at::Tensor x = normal({2, 4, 6}, 1);
  CHECK(close(l(x, x, {}), plain(x, x, {})));  // α = I
  const std::vector<int64_t> from{2, 0, 1};    // Z'_i = Z_from[i]
  at::Tensor alpha = at::zeros({3, 3});
  for (int64_t i = 0; i < 3; ++i) alpha[i][from[static_cast<size_t>(i)]] = 1;
  l.set("combiner.alpha", alpha);
  const auto blocks = l["output.weight"].chunk(3, 1);
  std::vector<at::Tensor> moved(3);
  for (size_t i = 0; i < 3; ++i) moved[static_cast<size_t>(from[i])] = blocks[i];
  plain.set("output.weight", at::cat(moved, 1));
  CHECK(close(l(x, x, {}), plain(x, x, {})));
}

TEST_CASE("diagonal alphas are weights of the heads", "[combiners]") {
  c10::NoGradGuard no_gradient;
  Layer l("heads = 3\ncombiner = 'alphas'", 6, 5),
      w("heads = 3\ncombiner = 'head-weights'\n[attention.head-weights]\nweights = [0.5, -2.0, 0.0]", 6, 5),
      plain("heads = 3", 6, 5);
  const at::Tensor weights = at::tensor({0.5F, -2.0F, 0.0F}), x = normal({2, 4, 6}, 1);
  l.set("combiner.alpha", at::diag(weights));
  Watch watch;
  CHECK(close(l(x, x, {}), w(x, x, {}, {}, &watch)));
  CHECK(at::equal(watch.g, weights));
  set_head_scales(*plain.layer, {{}, weights, {}});
  CHECK(close(plain(x, x, {}), w(x, x, {})));
  CHECK(close(by_heads(w, watch.z, weights), w(x, x, {})));
}

TEST_CASE("Mixhead and multi-head mixing agree where the heads share their values", "[combiners]") {
  c10::NoGradGuard no_gradient;
  Layer mixed("heads = 3\nmixer = 'mixhead-a'", 6, 5), combined("heads = 3\ncombiner = 'alphas'", 6, 5);
  const at::Tensor m = normal({3, 3}, 4), x = normal({2, 4, 6}, 1);
  mixed.set("mixer.matrix", m);
  combined.set("combiner.alpha", m.t());
  CHECK(!close(mixed(x, x, {}), combined(x, x, {}), 1e-3));
  for (Layer* l : {&mixed, &combined}) {
    l->set("value.weight", (*l)["value.weight"].narrow(0, 0, 2).repeat({3, 1}));
    l->set("value.bias", (*l)["value.bias"].narrow(0, 0, 2).repeat({3}));
  }
  CHECK(close(mixed(x, x, {}), combined(x, x, {})));
}

TEST_CASE("weights of heads are refused where they are not one for each", "[combiners]") {
  auto made = [](const char* list) {
    return Layer(str("heads = 3\ncombiner = 'head-weights'\n[attention.head-weights]\nweights = ", list), 6);
  };
  for (const char* list : {"[1.0]", "[1.0, 1.0, 1.0, 1.0]"}) {
    try {
      made(list);
      FAIL("taken");
    } catch (const Error& error) {
      CHECK(error.exit() == Exit::usage);
      CHECK(std::string(error.what()).find("a weight for each of 3 heads") != std::string::npos);
    }
  }
  CHECK_NOTHROW(made("[]"));
}

TEST_CASE("gates are sigmoids, of the input where asked", "[combiners]") {
  const at::Tensor x = normal({2, 4, 6}, 1), r = normal({2, 4, 6}, 2);
  for (bool input : {false, true}) {
    Layer l(str("heads = 3\nhead_size = 4\ncombiner = 'gates'\n[attention.gates]\nstart = 0.75\ninput = ",
                input ? "true" : "false"),
            6, 5);
    Watch watch;
    l(x, x, {}, {}, &watch);
    CHECK(close(watch.g, at::full(watch.g.sizes(), 0.75)));
    l.shake(3);
    const at::Tensor y = l(x, x, {}, {}, &watch);
    CHECK(watch.g.sizes() == (input ? at::IntArrayRef({2, 4, 3}) : at::IntArrayRef({3})));
    for (int64_t i = 0; i < 3; ++i)
      for (int64_t t = 0; t < (input ? 4 : 1); ++t) {
        double a = l["combiner.gate.bias"][i].item<double>();
        if (input)
          for (int64_t c = 0; c < 6; ++c)
            a += l["combiner.gate.weight"][i][c].item<double>() * x[1][t][c].item<double>();
        CHECK((input ? watch.g[1][t][i] : watch.g[i]).item<double>() == Approx(sigmoid(a)).epsilon(1e-5));
      }
    CHECK(close(y, by_heads(l, watch.z, watch.g)));
    // Gradients by differences of the double-precision sum over heads.
    (y * r).sum().backward();
    for (const char* part : {"combiner.gate.bias", "combiner.gate.weight"}) {
      if (l.parameters.find(std::string("x.") + part) == nullptr) continue;
      const at::Tensor g = l[part].grad().flatten();
      for (int64_t i = 0; i < g.numel(); ++i) {
        auto loss = [&](double step) {
          c10::NoGradGuard no_gradient;
          at::Tensor one = l[part].view({-1})[i];
          one.add_(step);
          const double value = (l(x, x, {}).to(at::kDouble) * r).sum().item<double>();
          one.sub_(step);
          return value;
        };
        CHECK(g[i].item<double>() == Approx((loss(1e-2) - loss(-1e-2)) / 2e-2).margin(5e-3).epsilon(1e-2));
      }
    }
  }
}

TEST_CASE("hard-concrete gates: the equation, its penalty, and their gradients", "[combiners]") {
  const HardConcrete how;
  const at::Tensor a = normal({40}, 1).to(at::kDouble) * 2, u = at::sigmoid(normal({40}, 2).to(at::kDouble) * 2);
  auto gate = [&](double log_a, double x) {
    const double s = sigmoid((std::log(x) - std::log(1 - x) + log_a) / 0.33);
    return std::min(1.0, std::max(0.0, -0.1 + 1.2 * s));
  };
  const at::Tensor x = a.clone().requires_grad_(), g = hard_concrete(how, x, u), still = hard_concrete(how, a, {});
  g.sum().backward();
  int64_t closed = 0, open = 0;
  double penalty = 0;
  for (int64_t i = 0; i < 40; ++i) {
    const double ai = a[i].item<double>(), ui = u[i].item<double>(), gi = g[i].item<double>();
    CHECK(gi == Approx(gate(ai, ui)).margin(1e-12));
    CHECK(still[i].item<double>() == Approx(std::min(1.0, std::max(0.0, -0.1 + 1.2 * sigmoid(ai)))).margin(1e-12));
    CHECK(x.grad()[i].item<double>() == Approx((gate(ai + 1e-6, ui) - gate(ai - 1e-6, ui)) / 2e-6).margin(1e-6));
    closed += gi == 0, open += gi == 1;
    penalty += sigmoid(ai - 0.33 * std::log(0.1 / 1.1));
  }
  CHECK((closed > 0 && open > 0));
  CHECK(hard_concrete_penalty(how, a).item<double>() == Approx(penalty));
}

TEST_CASE("the penalty of hard-concrete gates is the expected number that are not 0", "[combiners]") {
  const at::Tensor a = at::full({1}, 0.7, at::kDouble);
  const int64_t draws = 20000;
  const at::Tensor u = (at::arange(draws, at::kDouble) + 0.5) / static_cast<double>(draws);
  const at::Tensor g = hard_concrete({}, a.expand({draws}), u);
  CHECK((g != 0).to(at::kDouble).mean().item<double>() ==
        Approx(hard_concrete_penalty({}, a).item<double>()).margin(1e-4));
}

TEST_CASE("hard-concrete gates are drawn by seed, update and layer, one draw for the batch; not outside of training",
          "[combiners]") {
  c10::NoGradGuard no_gradient;
  Layer l("heads = 8\nhead_size = 2\ncombiner = 'hard-concrete'", 6, 5);
  const at::Tensor x = normal({2, 4, 6}, 1);
  auto drawn = [&](bool training, uint64_t seed, uint32_t update, int64_t rows = 2, int64_t first = 0) {
    ForwardContext step;
    step.training = training;
    step.seed = seed;
    step.update = update;
    step.row_offset = first;
    Watch watch;
    const at::Tensor part = x.narrow(0, 0, rows);
    const at::Tensor y = l(part, part, {}, step, &watch);
    CHECK(close(y, by_heads(l, watch.z, watch.g)));
    return watch.g;
  };
  CHECK(at::equal(drawn(true, 1, 0), drawn(true, 1, 0)));
  CHECK(at::equal(drawn(true, 1, 0), drawn(true, 1, 0, 1, 1)));  // a micro-batch of the same update
  CHECK(!at::equal(drawn(true, 1, 0), drawn(true, 1, 1)));
  CHECK(!at::equal(drawn(true, 1, 0), drawn(true, 2, 0)));
  CHECK(at::equal(drawn(false, 1, 0), drawn(false, 2, 1)));
  CHECK(close(drawn(false, 1, 0), at::full({8}, 0.5)));  // log a = 0
}

TEST_CASE("combiners that act on head outputs leave the fused path open", "[combiners]") {
  const at::Tensor x = normal({2, 20, 32}, 1);
  Mask mask;
  mask.causal = true;
  for (const char* combiner : {"alphas", "gates", "head-weights", "hard-concrete"}) {
    Layer l(str("heads = 2\ncombiner = '", combiner, "'"), 32, 5);
    l.shake(3);
    CHECK(l.layer->describe_path(false) == "fused");
    const at::Tensor fused = l(x, x, mask);
    l.layer->set_path(Path::composed);
    CHECK(close(fused, l(x, x, mask)));
  }
  CHECK(Layer("heads = 2\nmixer = 'talking-heads'\ncombiner = 'alphas'", 32).layer->describe_path(false) != "fused");
}
