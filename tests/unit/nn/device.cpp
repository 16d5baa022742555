// What runs on a GPU gives what the CPU gives: `torch-tests --device cuda`.
#include <c10/core/GradMode.h>

#define CATCH_CONFIG_EXTERNAL_INTERFACES  // for a listener
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "base/error.h"
#include "base/log.h"
#include "data/text.h"
#include "fixtures/corpora.h"
#include "fixtures/device.h"
#include "fixtures/numbers.h"
#include "fixtures/skip.h"
#include "model/load.h"
#include "nn/device.h"
#include "nn/ops.h"
#include "oracle/tolerance.h"
#include "search/generation.h"
#include "task/token_score.h"
#include "train/optimizer.h"

using namespace mh;
using numbers::error;
using numbers::size_of;

namespace {

std::unique_ptr<model::LanguageModel> small_model(at::Device device, const std::string& extra = "") {
  Config config;
  // Of gelu, whose gradient has no steps that rounding could move an input over.
  config.load_text(
      "[model]\nlayers = 2\nwidth = 32\nffn = 64\ndropout_ffn = 0.2\ndropout_embedding = 0.1\n"
      "activation = 'gelu'\n" +
          extra + "[attention]\nheads = 4\ndropout = 0.1\n",
      "test");
  auto model = model::build_language_model(model::ModelConfig::read(config), 50, device);
  model->parameters().initialise(1);
  return model;
}

bool near(const at::Tensor& a, const at::Tensor& b, double tolerance = 1e-4) {
  return at::allclose(a.to(at::kCPU, at::kDouble), b.to(at::kCPU, at::kDouble), tolerance, tolerance);
}

at::Tensor some_tokens(int64_t rows, int64_t length) {
  return (at::arange(rows * length) * 7 % 50).view({rows, length});
}

// Before the first test: what another one asks the tensor library would settle that there is no CUDA.
struct ChooseDevice : Catch::TestEventListenerBase {
  using TestEventListenerBase::TestEventListenerBase;
  void testRunStarting(const Catch::TestRunInfo&) override {
    if (test_device() != "cuda") return;
    try {
      nn::choose_device("cuda");
    } catch (const Error& error) {
      std::fprintf(stderr, "%s\n", error.what());
      std::exit(static_cast<int>(error.exit()));
    }
  }
};
CATCH_REGISTER_LISTENER(ChooseDevice)

#define NEEDS_GPU                                           \
  if (test_device() != "cuda") SKIP("needs --device cuda"); \
  static const at::Device gpu = nn::choose_device("cuda")

}  // namespace

TEST_CASE("a device that is not there is refused", "[device]") {
  if (test_device() == "cuda") SKIP("there is a GPU");
  CHECK(nn::choose_device("cpu").is_cpu());
  CHECK(nn::choose_device("auto").is_cpu());
  CHECK_THROWS_AS(nn::choose_device("cuda"), Error);
}

TEST_CASE("dropout on a GPU takes the CPU's decisions", "[device]") {
  NEEDS_GPU;
  for (auto type : {at::kFloat, at::kBFloat16})
    for (int64_t width : {1, 5, 64, 4099}) {
      nn::ForwardContext step{true, 7, 3, 5};
      at::Tensor x = at::randn({3, width}).to(type);
      at::Tensor cpu = nn::dropout(x, 0.3, step, "s", 2), there = nn::dropout(x.to(gpu), 0.3, step, "s", 2);
      CHECK(at::equal(cpu, there.to(at::kCPU)));
    }
}

TEST_CASE("a training step on a GPU is the CPU's", "[device]") {
  NEEDS_GPU;
  const at::Tensor inputs = some_tokens(3, 17), targets = some_tokens(3, 17).roll(1, 1);
  const std::string bands =
      "input_cutoffs = [10, 30]\noutput_cutoffs = [10, 30]\ntied_projections = true\ndropout_tail = 0.2\n";
  for (auto [bf16, extra] : {std::pair{false, std::string()}, {true, ""}, {false, bands}, {true, bands}}) {
    auto here = small_model(at::kCPU, extra), there = small_model(gpu, extra);
    std::vector<double> losses;
    for (auto* model : {here.get(), there.get()}) {
      model->parameters().set_bf16(bf16);
      nn::ForwardContext step{true, 1, 4, 0};
      auto loss = model->loss(model->hidden(inputs.to(model->parameters().device()), step), targets,
                              extra.empty() ? 0.1 : 0, step);
      loss.smoothed.backward();
      model->parameters().collect_gradients();
      losses.push_back(loss.nll.item<double>());
    }
    const double tolerance = bf16 ? 3e-2 : 1e-4;
    CHECK(losses[0] == Approx(losses[1]).epsilon(tolerance));
    for (auto& p : here->parameters().all()) {
      INFO(p.name() << ", bf16 " << bf16);
      const at::Tensor wanted = p.master().grad();
      CHECK(error(there->parameters().find(p.name())->master().grad().cpu(), wanted) <=
            tolerance * (1 + size_of(wanted)));
    }
  }
}

TEST_CASE("optimisers on a GPU take the CPU's step", "[device]") {
  NEEDS_GPU;
  for (const auto& [rule, decays_all] : {std::pair("adamw", true), {"adamw", false}, {"sgd", true}, {"nag", true}}) {
    train::TrainOptions o;
    o.optimizer.rule = rule, o.optimizer.weight_decay = 0.1, o.optimizer.momentum = 0.9;
    o.optimizer.decay_norms_and_biases = decays_all;
    nn::ParameterList here(at::kCPU), there(gpu);
    for (auto* list : {&here, &there}) {
      for (int64_t i = 0; i < 50; ++i)  // more than a launch takes
        list->add(str("w", i), {33, i == 7 ? 4001 : i + 1}, {nn::Init::normal(1), true, true});
      list->initialise(1);
      list->set_bf16(true);
    }
    const train::Groups groups;
    train::Optimizer a(here, o, groups), b(there, o, groups);
    for (int n = 1; n <= 5; ++n) {
      for (auto& p : here.all()) {
        const at::Tensor g = p.master().mutable_grad() = at::randn(p.master().sizes());
        there.find(p.name())->master().mutable_grad() = g.to(gpu);
      }
      CHECK(a.gradient_norm(0.5) == Approx(b.gradient_norm(0.5)).epsilon(1e-12));
      CHECK(b.gradient_norm(0.5) == b.gradient_norm(0.5));
      a.step(0.01, 0.5);
      b.step(0.01, 0.5);
    }
    for (auto& p : there.all()) {
      CHECK(near(here.find(p.name())->master(), p.master(), 1e-5));
      CHECK(p.value().equal(p.master().to(at::kBFloat16)));
    }
  }
}

TEST_CASE("sliced cross-entropy on a GPU errs at most twice as much as the composed one, with the same bits twice",
          "[device]") {
  NEEDS_GPU;
  at::manual_seed(3);
  const int64_t n = 3000, d = 64, v = 33278;  // two slices, rows of no whole fours
  const at::Tensor h0 = at::randn({n, d}), w0 = at::randn({v, d}) * 0.3, targets = at::randint(v, {n}, at::kLong);
  targets.narrow(0, 100, 50).fill_(-1);
  using Tensors = std::vector<at::Tensor>;
  const auto results = [&](at::ScalarType type, const auto& loss_of) {
    const at::Tensor h = h0.to(gpu, type).requires_grad_(), w = w0.to(gpu, type).requires_grad_();
    const at::Tensor loss = loss_of(h, w);
    loss.backward();
    return Tensors{loss.detach(), h.grad(), w.grad()};
  };
  const auto sliced = [&](const at::Tensor& h, const at::Tensor& w) {
    return nn::sliced_cross_entropy(h, w, {}, targets, v, 0.1).smoothed;
  };
  const auto composed = [&](const at::Tensor& h, const at::Tensor& w) {
    const auto wide = h.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
    return at::cross_entropy_loss(at::linear(h, w).to(wide), targets.to(gpu), {}, at::Reduction::Sum, -1, 0.1);
  };
  const Tensors exact = results(at::kDouble, composed);
  for (const auto type : {at::kFloat, at::kBFloat16}) {
    const Tensors found = results(type, sliced), again = results(type, sliced), other = results(type, composed);
    for (size_t i = 0; i < exact.size(); ++i) {
      INFO("result " << i);
      CHECK(found[i].equal(again[i]));
      const auto error = [&](const at::Tensor& x) { return (x.to(at::kDouble) - exact[i]).abs().max().item<double>(); };
      CHECK(error(found[i]) <=
            tolerance::beside_composed(error(other[i]), tolerance::kFp32, exact[i].abs().max().item<double>()));
    }
  }
}

TEST_CASE("sum, dropout and norm on a GPU are the CPU's", "[device]") {
  NEEDS_GPU;
  at::manual_seed(4);
  for (const int64_t size : {5, 512, 1026, 4096})
    for (const auto type : {at::kFloat, at::kBFloat16}) {
      INFO("size " << size << ", " << type);
      const at::Tensor x0 = at::randn({3, 67, size}), y0 = at::randn({3, 67, size}).to(type), w0 = at::randn({size}),
                       b0 = at::randn({size}), of_sum = at::randn_like(x0), of_norm = at::randn_like(x0);
      const auto results = [&](at::Device device) {
        const auto leaf = [&](const at::Tensor& t) { return t.to(device).detach().clone().requires_grad_(); };
        const at::Tensor x = leaf(x0), y = leaf(y0), w = leaf(w0), b = leaf(b0);
        const nn::ForwardContext step{true, 7, 3, 5};
        const auto made = nn::add_and_norm(x, y, {0.3, step, "s", 2}, w, b, 1e-5);
        ((made.sum * of_sum.to(device)).sum() + (made.norm * of_norm.to(device)).sum()).backward();
        return std::vector<at::Tensor>{made.sum.detach(), made.norm.detach(), x.grad(), y.grad(), w.grad(), b.grad()};
      };
      const auto here = results(at::kCPU), there = results(gpu), again = results(gpu);
      for (size_t i = 0; i < here.size(); ++i) {
        CHECK(near(here[i], there[i], i == 3 && type == at::kBFloat16 ? 1e-2 : 1e-4));
        CHECK(there[i].equal(again[i]));
      }
    }
}

TEST_CASE("scores and greedy text on a GPU are the CPU's", "[device]") {
  NEEDS_GPU;
  auto here = small_model(at::kCPU), there = small_model(gpu);
  std::vector<int32_t> text;
  for (int i = 0; i < 200; ++i) text.push_back(i * i % 50);
  data::ScoringOptions scoring;
  scoring.block = 16, scoring.context = 4;
  CHECK(task::score(*here, corpora::text_of(text, 0), scoring).nll ==
        Approx(task::score(*there, corpora::text_of(text, 0), scoring).nll).epsilon(1e-5));
  search::GenerationOptions options;
  options.length = 20, options.temperature = 0;
  std::vector<int32_t> written[2];
  for (int i = 0; i < 2; ++i)
    search::generate(i == 0 ? *here : *there, {0, 3, 4}, options, 0, [&](int32_t token) {
      written[i].push_back(token);
      return true;
    });
  CHECK(written[0] == written[1]);
}
