// Scoring a random sample of the blocks of a text: selected blocks, context or memory before a block, visited rows.
#include <c10/core/GradMode.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <set>

#include "data/text.h"
#include "fixtures/corpora.h"
#include "fixtures/passes.h"
#include "fixtures/status.h"
#include "model/memories.h"
#include "model/model_config.h"
#include "task/token_score.h"

using namespace mh;

namespace {

std::unique_ptr<model::LanguageModel> build(const std::string& lines) {
  Config config;
  config.load_text(
      "[model]\nlayers = 2\nwidth = 8\nffn_dim = 16\n" + lines + "[attention]\nheads = 2\nscore = 'relative'\n",
      "test");
  auto model = model::build_language_model(model::ModelConfig::read(config), {7}, at::kCPU);
  model->parameters().initialise(3);
  return model;
}

std::vector<int32_t> repeating_text(int n) {
  std::vector<int32_t> text;
  for (int i = 0; i < n; ++i) text.push_back(i * i * i % 7);
  return text;
}

struct ScoredTokens {
  std::vector<int64_t> indices;
  std::vector<double> log_probabilities;
};

// Returns a matcher for `log_p`, the log-probability of a token, nats, computed in a batch of another shape than the
// matched value. The bound is relative to |log_p| or, if larger, to 1, since the logits that cancel in a
// log-probability have a magnitude of at least 1.
Approx near_log_probability(model::LanguageModel& model, double log_p, const data::ScoringOptions& options) {
  const double bound = rounding::pass_bound(model, options.sequence_length + options.context + model.memory_length());
  return rounding::within(log_p, bound * std::max(1.0, std::abs(log_p)));
}

ScoredTokens score(model::LanguageModel& model, const std::vector<int32_t>& text, const data::ScoringOptions& options) {
  ScoredTokens s;
  task::ScoreCallbacks callbacks;
  callbacks.on_token = [&](const task::TokenScore& token_score) {
    s.indices.push_back(token_score.index);
    s.log_probabilities.push_back(token_score.log_probability);
  };
  const task::NllSum total = task::score(model, corpora::text_of(text, 0), options, callbacks);
  CHECK(total.num_tokens == static_cast<int64_t>(s.indices.size()));
  return s;
}

}  // namespace

TEST_CASE("a sample contains whole blocks selected by the seed, and their tokens have the scores of the full text",
          "[sample]") {
  auto model = build("");
  const auto text = repeating_text(61);
  data::ScoringOptions options;
  options.sequence_length = 6, options.context = 2, options.sample.blocks = 5;
  std::set<std::vector<int64_t>> draws;
  const ScoredTokens full_text_scores = score(*model, text, [&] {
    data::ScoringOptions full_text_options = options;
    full_text_options.sample.blocks = 0;
    return full_text_options;
  }());
  for (int seed = 0; seed < 8; ++seed) {
    options.sample.seed = seed;
    options.batch = 1 + seed % 3;
    const ScoredTokens s = score(*model, text, options);
    REQUIRE(s.indices.size() == 20);
    for (size_t i = 0; i < 20; ++i) {
      if (i % 4 == 0) CHECK(s.indices[i] % 4 == 0);
      else CHECK(s.indices[i] == s.indices[i - 1] + 1);
      if (i > 0) CHECK(s.indices[i] > s.indices[i - 1]);
      const double expected = full_text_scores.log_probabilities[static_cast<size_t>(s.indices[i])];
      CHECK(s.log_probabilities[i] == near_log_probability(*model, expected, options));
    }
    draws.insert(s.indices);
    CHECK(score(*model, text, options).indices == s.indices);
  }
  CHECK(draws.size() > 4);
  // The text has 14 blocks with a full context before them. The first block has no context and cannot be sampled.
  options.sample.blocks = 14;
  CHECK(score(*model, text, options).indices.size() == 56);
  options.sample.blocks = 15;
  CHECK(status_of([&] { score(*model, text, options); }) == 2);
}

TEST_CASE("a sampled block is scored with a full memory, and the blocks that fill the memory are not visited",
          "[sample]") {
  c10::NoGradGuard no_gradient;
  auto model = build("backbone = 'transformer-xl'\npositions = 'none'\ntransformer-xl.memory = 9\n");
  const auto text = repeating_text(61);
  data::ScoringOptions options;
  options.sequence_length = 4, options.sample.blocks = 6;
  const ScoredTokens s = score(*model, text, options);
  REQUIRE(s.indices.size() == 24);
  CHECK(s.indices[0] >= 12);
  for (size_t i = 0; i < s.indices.size(); i += 4) {
    auto memory = model->new_memory(9);
    at::Tensor log_p;
    for (int64_t block = s.indices[i] / 4 - 3; block <= s.indices[i] / 4; ++block) {
      const data::Batch batch = data::load_rows(corpora::text_of(text, 0), {{4 * block, 4, 0}}, 4);
      log_p = model->target_log_probabilities(model->hidden(model::Input{batch.input.tokens}, {}, memory.get()),
                                              batch.targets)[0];
    }
    for (int64_t t = 0; t < 4; ++t)
      CHECK(s.log_probabilities[i + static_cast<size_t>(t)] ==
            near_log_probability(*model, log_p[t].item<double>(), options));
  }
  struct TokenCounter : attention::Observer {
    int64_t num_tokens = 0;
    void begin_batch(const attention::Lengths& lengths) override {
      num_tokens += lengths.decoder.sum().item<int64_t>();
    }
  } counter;
  data::BatchVisitor visitor;
  visitor.observer = &counter;
  int64_t num_rows = 0;
  visitor.visit = [&](const data::ForwardedBatch& pass) { num_rows += static_cast<int64_t>(pass.rows.size()); };
  const data::Text corpus = corpora::text_of(text, 0);
  data::for_each_batch(*model, corpus, options, visitor);
  CHECK(counter.num_tokens == 24);
  CHECK(num_rows == 6);
}
