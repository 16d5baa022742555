// Whole models on the device of the tests (--device cuda) against the CPU: updates, decoding, spectra, and a recorded
// pass. Without a GPU most of them compare the CPU with itself, so that the tests are tested.
#include <c10/core/GradMode.h>

#include <catch2/catch.hpp>
#include <vector>

#include "analysis/spectrum.h"
#include "fixtures/aten.h"
#include "fixtures/device.h"
#include "fixtures/every_model.h"
#include "fixtures/numbers.h"
#include "fixtures/skip.h"
#include "nn/device.h"
#include "nn/device_graph.h"
#include "search/beam_search.h"
#include "train/graphed_pass.h"
#include "train/groups.h"
#include "train/optimizer.h"

using namespace mh;
using namespace mh::model;
using namespace mh::nn;
using numbers::error;
using numbers::size_of;

namespace {

std::unique_ptr<LanguageModel> built(const std::string& toml, at::Device device) {
  auto model = build_language_model(models::configured(toml), every_model::kVocabularies, device);
  model->parameters().initialise(1);
  return model;
}

struct Result {
  std::string name;
  at::Tensor value;  // on the CPU
};

void require_near(const std::vector<Result>& found, const std::vector<Result>& wanted, double tolerance) {
  REQUIRE(found.size() == wanted.size());
  for (size_t i = 0; i < found.size(); ++i) {
    INFO(wanted[i].name);
    REQUIRE(found[i].name == wanted[i].name);
    const double off = error(found[i].value, wanted[i].value);
    INFO("off by " << off);
    CHECK(off <= tolerance * (1 + size_of(wanted[i].value)));
  }
}

// What an update makes, and the loss of the next.
std::vector<Result> two_updates(const std::string& toml, at::Device device) {
  const auto model = built(toml, device);
  const bool encodes = toml.find("'bert'") != toml.npos;
  train::TrainOptions options;
  train::Optimizer optimizer(model->parameters(), options, train::Groups());
  const Input input = every_model::input(*model, encodes);
  std::vector<Result> all;
  const auto add = [&](const std::string& name, const at::Tensor& t) {
    all.push_back({name, t.detach().to(at::kCPU, at::kDouble)});
  };
  for (uint32_t update = 0; update < 2; ++update) {
    const nn::ForwardContext step{true, 5, update, 0};
    const at::Tensor hidden = model->hidden(input.to(device), step);
    at::Tensor loss = hidden.square().mean();  // a head's targets are its own
    if (!encodes) loss = model->loss(hidden, input.tokens.roll(1, 1), 0.1, step).smoothed / 10;
    loss.backward();
    model->parameters().collect_gradients();
    add(str("loss ", update), loss);
    if (update > 0) break;
    add("hidden", hidden);
    for (const Parameter& p : model->parameters().all())
      if (p.master().grad().defined()) add("gradient of " + p.name(), p.master().grad());
    add("norm", at::scalar_tensor(optimizer.gradient_norm(1), at::kDouble));
    optimizer.step(1e-3, 1);
    model->parameters().zero_gradients();
  }
  return all;
}

}  // namespace

TEST_CASE("updates of every model on the device of the tests are the CPU's", "[device]") {
  const at::Device device = choose_device(test_device());
  for (const std::string& toml : every_model::configurations()) {
    INFO(toml);
    require_near(two_updates(toml, device), two_updates(toml, at::kCPU), 1e-3);
  }
}

TEST_CASE("a search on the device of the tests finds what the CPU's finds", "[device]") {
  const at::Device device = choose_device(test_device());
  const c10::NoGradGuard no_gradient;
  for (const char* stage : {"", "mixer = 'mixhead-a'\n", "mixer = 'mixhead-b'\nnormaliser = 'sigsoftmax'\n"}) {
    INFO(stage);
    std::vector<std::vector<std::vector<search::Hypothesis>>> found;
    for (const at::Device on : {device, at::Device(at::kCPU)}) {
      const auto model = built(translators::kTiny + std::string(stage), on);
      for (Parameter& p : model->parameters().all())
        if (p.master().dim() == 2) p.master().mul_(1.7);  // so that no two ways to go on are near one another
      std::vector<search::Sentence> sentences;
      for (int32_t i = 0; i < 5; ++i) sentences.push_back({{2 + i, 3, 4 + i, 0}, {}, i});
      search::SearchOptions options;
      options.beam = 4, options.max_length_b = 20;
      found.push_back(search::beam_search(*model, sentences, {0, 1}, options));
    }
    REQUIRE(found[0].size() == found[1].size());
    for (size_t i = 0; i < found[0].size(); ++i) {
      REQUIRE(found[0][i].size() == found[1][i].size());
      for (size_t n = 0; n < found[0][i].size(); ++n) {
        CHECK(found[0][i][n].tokens == found[1][i][n].tokens);
        CHECK(found[0][i][n].score == Approx(found[1][i][n].score).epsilon(1e-4));
      }
    }
  }
}

TEST_CASE("singular values on the device of the tests are the CPU's", "[device]") {
  const at::Device device = choose_device(test_device());
  at::manual_seed(4);
  for (const int64_t columns : {7, 40, 90}) {
    const at::Tensor x = at::randn({3, 2, 40, columns}).softmax(-1);
    const at::Tensor found = analysis::singular_values(x.to(device)), wanted = analysis::singular_values(x);
    CHECK(error(found, wanted) <= 1e-7 * size_of(wanted));
  }
}

TEST_CASE("a graph of a GPU gives what its kernels give one by one", "[device]") {
  if (test_device() != "cuda") SKIP("needs --device cuda");
  const at::Device device = choose_device("cuda");
  for (const char* stage : {"", "mixer = 'mixhead-a'\n", "pairing = 'cross-head'\n", "combiner = 'alphas'\n"})
    for (const bool bf16 : {false, true}) {
      INFO(stage << (bf16 ? "bf16" : "fp32"));
      const std::string toml =
          std::string(
              "[model]\nlayers = 2\nwidth = 32\nffn = 48\ndropout_ffn = 0.2\ndropout_embedding = 0.1\n"
              "[attention]\nheads = 4\ndropout = 0.1\n") +
          stage;
      const auto recorded = built(toml, device), plain = built(toml, device);
      recorded->parameters().set_bf16(bf16), plain->parameters().set_bf16(bf16);
      const auto work_of = [](LanguageModel& model) {
        return [&model](const Input& input, const Targets& targets, const nn::ForwardContext& step) {
          const SlicedLoss loss = model.loss(model.hidden(input, step), targets, 0.1, step);
          loss.smoothed.backward();
          model.parameters().collect_gradients();
          return loss;
        };
      };
      train::GraphedPass pass(*recorded, work_of(*recorded), make_device_graph);
      for (uint32_t update = 0; update < 8; ++update) {
        INFO("update " << update);
        const data::Batch batch{{models::some_tokens(3, 9, 30, update)}, models::some_tokens(3, 9, 30, update + 50)};
        const nn::ForwardContext step{true, 1, update, 0};
        const SlicedLoss found = pass(batch, step),
                         wanted = work_of(*plain)(batch.input.to(device), batch.wanted(), step);
        CHECK(found.nll.item<double>() == Approx(wanted.nll.item<double>()).epsilon(1e-5));
        CHECK(found.scored == wanted.scored);
        for (const Parameter& p : plain->parameters().all()) {
          INFO(p.name());
          const at::Tensor mine = recorded->parameters().find(p.name())->master().grad(), other = p.master().grad();
          REQUIRE(mine.defined() == other.defined());
          if (mine.defined()) CHECK(error(mine.to(at::kCPU), other.to(at::kCPU)) <= 1e-5 * (1 + size_of(other)));
        }
        recorded->parameters().zero_gradients(), plain->parameters().zero_gradients();
      }
      CHECK(pass.recorded());
    }
}
