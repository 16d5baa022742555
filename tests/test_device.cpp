// What runs on a GPU gives what the CPU gives: `torch-tests --device cuda`.
#include <c10/core/GradMode.h>

#define CATCH_CONFIG_EXTERNAL_INTERFACES  // for a listener
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "base/error.h"
#include "base/log.h"
#include "device.h"
#include "model/device.h"
#include "model/load.h"
#include "skip.h"
#include "task/generation.h"
#include "task/scoring.h"
#include "train/optimizer.h"

using namespace mh;

namespace {

std::unique_ptr<model::LanguageModel> small_model(at::Device device, const std::string& extra = "") {
  Config config;
  config.load_text("[model]\nlayers = 2\nwidth = 32\nffn = 64\ndropout_ffn = 0.2\ndropout_embedding = 0.1\n" + extra +
                       "[attention]\nheads = 4\ndropout = 0.1\n",
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
      model::choose_device("cuda");
    } catch (const Error& error) {
      std::fprintf(stderr, "%s\n", error.what());
      std::exit(static_cast<int>(error.exit()));
    }
  }
};
CATCH_REGISTER_LISTENER(ChooseDevice)

#define NEEDS_GPU                                           \
  if (test_device() != "cuda") SKIP("needs --device cuda"); \
  static const at::Device gpu = model::choose_device("cuda")

}  // namespace

TEST_CASE("a device that is not there is refused", "[device]") {
  if (test_device() == "cuda") SKIP("there is a GPU");
  CHECK(model::choose_device("cpu").is_cpu());
  CHECK(model::choose_device("auto").is_cpu());
  CHECK_THROWS_AS(model::choose_device("cuda"), Error);
}

TEST_CASE("dropout on a GPU takes the CPU's decisions", "[device]") {
  NEEDS_GPU;
  for (auto type : {at::kFloat, at::kBFloat16})
    for (int64_t width : {1, 5, 64, 4099}) {
      attention::Step step{true, 7, 3, 5};
      at::Tensor x = at::randn({3, width}).to(type);
      at::Tensor cpu = model::dropout(x, 0.3, step, "s", 2), there = model::dropout(x.to(gpu), 0.3, step, "s", 2);
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
      attention::Step step{true, 1, 4, 0};
      auto loss = model->loss(model->hidden(inputs.to(model->parameters().device()), step), targets,
                              extra.empty() ? 0.1 : 0, step);
      loss.smoothed.backward();
      model->parameters().collect_gradients();
      losses.push_back(loss.nll);
    }
    const double tolerance = bf16 ? 3e-2 : 1e-4;
    CHECK(losses[0] == Approx(losses[1]).epsilon(tolerance));
    for (auto& p : here->parameters().all())
      CHECK(near(p.master().grad(), there->parameters().find(p.name())->master().grad(), tolerance));
  }
}

TEST_CASE("optimisers on a GPU take the CPU's step", "[device]") {
  NEEDS_GPU;
  for (const char* name : {"adam", "adamw", "sgd", "nag"}) {
    train::TrainOptions o;
    o.optimizer = name, o.weight_decay = 0.1, o.momentum = 0.9;
    model::ParameterList here(at::kCPU), there(gpu);
    for (auto* list : {&here, &there}) {
      list->add("w", {33, 7}, {model::Init::normal(1), true, false});
      list->initialise(1);
    }
    const train::Groups groups;
    train::Optimizer a(here, o, groups), b(there, o, groups);
    for (int n = 1; n <= 5; ++n) {
      at::Tensor g = at::randn({33, 7});
      here.all().front().master().mutable_grad() = g;
      there.all().front().master().mutable_grad() = g.to(gpu);
      CHECK(a.gradient_norm(0.5) == Approx(b.gradient_norm(0.5)));
      a.step(0.01, 0.5);
      b.step(0.01, 0.5);
    }
    CHECK(near(here.all().front().master(), there.all().front().master(), 1e-5));
  }
}

TEST_CASE("scores and greedy text on a GPU are the CPU's", "[device]") {
  NEEDS_GPU;
  auto here = small_model(at::kCPU), there = small_model(gpu);
  std::vector<int32_t> text;
  for (int i = 0; i < 200; ++i) text.push_back(i * i % 50);
  task::ScoringOptions scoring;
  scoring.block = 16, scoring.context = 4;
  CHECK(task::score(*here, task::text_of(text, 0), scoring).nll ==
        Approx(task::score(*there, task::text_of(text, 0), scoring).nll).epsilon(1e-5));
  task::GenerationOptions options;
  options.length = 20, options.temperature = 0;
  std::vector<int32_t> written[2];
  for (int i = 0; i < 2; ++i)
    task::generate(i == 0 ? *here : *there, {0, 3, 4}, options, 0, [&](int32_t token) {
      written[i].push_back(token);
      return true;
    });
  CHECK(written[0] == written[1]);
}
