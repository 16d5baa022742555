// Small models whose numbers are all their own, and what they give in segments and step by step.
#pragma once

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <memory>
#include <string>
#include <vector>

#include "model/memories.h"
#include "model/model_config.h"
#include "numbers.h"

namespace passes {

using namespace mh;
using numbers::normal;

// Within rounding: products have other shapes.
inline bool close(const at::Tensor& a, const at::Tensor& b) {
  return (a - b).abs().max().item<double>() <= 2e-5 * std::max(1.0, b.abs().max().item<double>());
}

// A model of three layers, none of whose parameters is what it starts as.
struct Model {
  model::ModelConfig config;
  std::unique_ptr<model::LanguageModel> model;

  explicit Model(const std::string& backbone, const std::string& attention) {
    const bool xl = backbone == "transformer-xl";
    Config text;
    text.load_text("[model]\nbackbone = '" + backbone + "'\nlayers = 3\nwidth = 12\nffn = 16\n" +
                       (xl ? "positions = 'none'\nmemory = 6\n" : "") + "[attention]\nheads = 4\nhead_size = 5\n" +
                       (xl ? "score = 'relative'\n" : "") + attention,
                   "test");
    config = model::ModelConfig::read(text);
    text.check_all_known();
    model = model::build_language_model(config, 6, at::kCPU);
    c10::NoGradGuard no_gradient;
    model->parameters().initialise(3);
    uint64_t seed = 5;
    for (auto& p : model->parameters().all())
      if (p.traits().trainable) p.master().add_(normal(p.master().sizes().vec(), seed++), 0.3);
  }
};

inline std::vector<at::Tensor> segments() {
  std::vector<at::Tensor> all;
  for (uint64_t i = 0; i < 3; ++i) all.push_back(normal({2, 5}, 20 + i).abs().mul(4).to(at::kLong).clamp_max(5));
  return all;
}

// Segments one after the other, with a memory where there is one; and step by step, where the model can.
inline std::vector<at::Tensor> run(model::LanguageModel& model, bool decodes = true) {
  c10::NoGradGuard no_gradient;
  std::vector<at::Tensor> all;
  auto memory = model.memory() > 0 ? model.new_memory(model.memory()) : nullptr;
  for (const at::Tensor& tokens : segments()) all.push_back(model.hidden(tokens, {}, memory.get()));
  if (!decodes) return all;
  auto state = model.new_state();
  for (const at::Tensor& tokens : segments())
    for (int64_t t = 0; t < 5; t += 2)
      all.push_back(model.hidden(tokens.narrow(1, t, std::min<int64_t>(2, 5 - t)), {}, state.get()));
  CHECK(state->length() == 15);
  state->reorder(at::tensor({1, 0, 1}, at::kLong));
  all.push_back(model.hidden(segments()[0].index_select(0, at::tensor({1, 0, 1}, at::kLong)), {}, state.get()));
  return all;
}

inline void check_same(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  REQUIRE(a.size() == b.size());
  for (size_t i = 0; i < a.size(); ++i) CHECK(close(a[i], b[i]));
}

}  // namespace passes
