// Models on the test device (--device cuda) against the CPU: updates, beam search, singular values, and CUDA graph
// capture. Without --device cuda most of these tests compare the CPU with itself, which checks the code of the tests.
#include <c10/core/GradMode.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <vector>

#include "analysis/spectrum.h"
#include "fixtures/aten.h"
#include "fixtures/device.h"
#include "fixtures/every_model.h"
#include "fixtures/numbers.h"
#include "fixtures/passes.h"
#include "fixtures/skip.h"
#include "nn/device.h"
#include "nn/device_graph.h"
#include "search/beam_search.h"
#include "train/graphed_forward_backward.h"
#include "train/optimizer.h"
#include "train/parameter_groups.h"

using namespace mh;
using namespace mh::model;
using namespace mh::nn;
using numbers::error;
using numbers::max_abs;

namespace {

std::unique_ptr<LanguageModel> build(const std::string& toml, at::Device device) {
  auto model = build_language_model(models::parse_model_config(toml), every_model::kVocabularySizes, device);
  model->parameters().initialise(1);
  return model;
}

struct Result {
  std::string name;
  at::Tensor value;  // fp64, on the CPU
};

constexpr double kLearningRate = 1e-3;

// Checks results of run_two_updates(). `gradient_bound`: rounding::gradient_bound() of the model. The bound is relative
// to the largest result, since a small gradient may be a difference of numbers as large as this result.
void require_near(const std::vector<Result>& actual, const std::vector<Result>& expected, double gradient_bound) {
  REQUIRE(actual.size() == expected.size());
  double largest_result = 1;
  for (const Result& result : expected) largest_result = std::max(largest_result, max_abs(result.value));
  const double bound = gradient_bound * largest_result;
  // Bound on the effect of the update on the next loss. Adam divides a gradient g with an error of at most `bound` by
  // its own magnitude, so the step of an element changes by at most 2 lr min(1, bound / |g|), which changes the loss by
  // at most |g| times this change.
  double loss_effect = 0;
  for (const Result& result : expected)
    if (result.name.starts_with("gradient of"))
      loss_effect += 2 * kLearningRate * result.value.abs().clamp_max(bound).sum().item<double>();
  for (size_t i = 0; i < actual.size(); ++i) {
    INFO(expected[i].name);
    REQUIRE(actual[i].name == expected[i].name);
    const double difference = error(actual[i].value, expected[i].value);
    INFO("largest difference " << difference);
    CHECK(difference <= bound + (expected[i].name == "loss 1" ? loss_effect : 0));
  }
}

// Runs one update and returns its loss, hidden states, gradients and gradient norm, then runs the forward and backward
// pass of the next update and returns its loss.
std::vector<Result> run_two_updates(const std::string& toml, at::Device device) {
  const auto model = build(toml, device);
  const bool is_encoder_only = toml.find("'bert'") != toml.npos;
  train::TrainOptions options;
  train::Optimizer optimizer(model->parameters(), options, train::ParameterGroups());
  const Input input = every_model::input(*model, is_encoder_only);
  std::vector<Result> results;
  const auto add = [&](const std::string& name, const at::Tensor& t) {
    results.push_back({name, t.detach().to(at::kCPU, at::kDouble)});
  };
  for (uint32_t update = 0; update < 2; ++update) {
    const nn::ForwardContext forward_context{true, 5, update, 0};
    const at::Tensor hidden = model->hidden(input.to(device), forward_context);
    at::Tensor loss = hidden.square().mean();  // for encoders, since the form of targets depends on the output head
    if (!is_encoder_only) loss = model->loss(hidden, {input.tokens.roll(1, 1)}, 0.1, forward_context).smoothed / 10;
    loss.backward();
    model->parameters().collect_gradients();
    add(str("loss ", update), loss);
    if (update > 0) break;
    add("hidden", hidden);
    for (const Parameter& p : model->parameters().all())
      if (p.master().grad().defined()) add("gradient of " + p.name(), p.master().grad());
    add("norm", at::scalar_tensor(optimizer.gradient_norm(1), at::kDouble));
    optimizer.step(kLearningRate, 1);
    model->parameters().zero_gradients();
  }
  return results;
}

}  // namespace

TEST_CASE("updates of every model on the test device equal updates on the CPU", "[device]") {
  const at::Device device = choose_device(test_device());
  for (const std::string& toml : every_model::configurations()) {
    INFO(toml);
    const auto model = build(toml, at::kCPU);
    require_near(run_two_updates(toml, device), run_two_updates(toml, at::kCPU), rounding::gradient_bound(*model, 7));
  }
}

TEST_CASE("beam search on the test device returns the hypotheses of the CPU", "[device]") {
  const at::Device device = choose_device(test_device());
  const c10::NoGradGuard no_gradient;
  for (const char* stage : {"", "mixer = 'mixhead-a'\n", "mixer = 'mixhead-b'\nnormaliser = 'sigsoftmax'\n"}) {
    INFO(stage);
    std::vector<std::vector<std::vector<search::Hypothesis>>> hypotheses;
    double pass_bound = 0;
    for (const at::Device run_device : {device, at::Device(at::kCPU)}) {
      const auto model = build(translators::kTiny + std::string(stage), run_device);
      for (Parameter& p : model->parameters().all())
        if (p.master().dim() == 2) p.master().mul_(1.7);  // so that no two scores are nearly equal
      std::vector<search::Sentence> sentences;
      for (int32_t i = 0; i < 5; ++i) sentences.push_back({{2 + i, 3, 4 + i, 0}, {}, i});
      search::SearchOptions options;
      options.beam = 4, options.max_length_b = 20;
      pass_bound = rounding::pass_bound(*model, options.max_length_b);
      hypotheses.push_back(search::beam_search(*model, sentences, {0, 1}, options));
    }
    REQUIRE(hypotheses[0].size() == hypotheses[1].size());
    for (size_t i = 0; i < hypotheses[0].size(); ++i) {
      REQUIRE(hypotheses[0][i].size() == hypotheses[1][i].size());
      for (size_t n = 0; n < hypotheses[0][i].size(); ++n) {
        const search::Hypothesis &actual = hypotheses[0][i][n], &expected = hypotheses[1][i][n];
        CHECK(actual.tokens == expected.tokens);
        // The bound is relative to |log-probability| or, if larger, the number of tokens, since the logits that cancel
        // in the log-probability of each token have a magnitude of at least 1. The length penalty divides the
        // log-probability and its error by the same number.
        const double magnitude =
            std::max(1.0, static_cast<double>(expected.tokens.size()) / std::abs(expected.log_probability));
        CHECK(actual.score == rounding::within(expected.score, pass_bound * magnitude * std::abs(expected.score)));
      }
    }
  }
}

TEST_CASE("singular values on the test device equal singular values on the CPU", "[device]") {
  const at::Device device = choose_device(test_device());
  at::manual_seed(4);
  for (const int64_t num_columns : {7, 40, 90}) {
    const at::Tensor x = at::randn({3, 2, 40, num_columns}).softmax(-1);
    const at::Tensor actual = analysis::singular_values(x.to(device)), expected = analysis::singular_values(x);
    // On each device the singular values have the precision of fp32 entries; values below 2^-24 σ_1 are set to 0
    // (analysis/spectrum.h).
    CHECK(error(actual, expected) <= 2 * tolerance::kFp32 * max_abs(expected));
  }
}

TEST_CASE("a captured CUDA graph has the losses and gradients of eager kernels", "[device]") {
  if (test_device() != "cuda") SKIP("needs --device cuda");
  const at::Device device = choose_device("cuda");
  for (const char* stage : {"", "mixer = 'mixhead-a'\n", "pairing = 'cross-head'\n", "combiner = 'alphas'\n"})
    for (const bool bf16 : {false, true}) {
      INFO(stage << (bf16 ? "bf16" : "fp32"));
      const std::string toml =
          std::string(
              "[model]\nlayers = 2\nwidth = 32\nffn_dim = 48\ndropout_ffn = 0.2\ndropout_embedding = 0.1\n"
              "[attention]\nheads = 4\ndropout = 0.1\n") +
          stage;
      const auto graphed_model = build(toml, device), eager_model = build(toml, device);
      graphed_model->parameters().use_bf16_copies(bf16), eager_model->parameters().use_bf16_copies(bf16);
      const auto forward_backward_of = [](LanguageModel& model) {
        return [&model](const Input& input, const Targets& targets, const nn::ForwardContext& forward_context) {
          const SlicedLoss loss = model.loss(model.hidden(input, forward_context), targets, 0.1, forward_context);
          loss.smoothed.backward();
          model.parameters().collect_gradients();
          return loss;
        };
      };
      train::GraphedForwardBackward graphed(*graphed_model, forward_backward_of(*graphed_model), make_device_graph);
      for (uint32_t update = 0; update < 8; ++update) {
        INFO("update " << update);
        const data::Batch batch{Input{models::random_tokens(3, 9, 30, update)},
                                models::random_tokens(3, 9, 30, update + 50)};
        const nn::ForwardContext forward_context{true, 1, update, 0};
        const SlicedLoss actual = graphed(batch, forward_context),
                         expected = forward_backward_of(*eager_model)(batch.input.to(device), batch.model_targets(),
                                                                      forward_context);
        const double nll = expected.nll.item<double>();
        CHECK(actual.nll.item<double>() == rounding::within(nll, rounding::pass_bound(*eager_model, 9) * nll));
        CHECK(actual.num_scored == expected.num_scored);
        for (const Parameter& p : eager_model->parameters().all()) {
          INFO(p.name());
          const at::Tensor actual_gradient = graphed_model->parameters().find(p.name())->master().grad(),
                           expected_gradient = p.master().grad();
          REQUIRE(actual_gradient.defined() == expected_gradient.defined());
          if (actual_gradient.defined())
            CHECK(error(actual_gradient.to(at::kCPU), expected_gradient.to(at::kCPU)) <=
                  rounding::gradient_bound(*eager_model, 9) * std::max(1.0, max_abs(expected_gradient)));
        }
        graphed_model->parameters().zero_gradients(), eager_model->parameters().zero_gradients();
      }
      CHECK(graphed.is_captured());
    }
}
