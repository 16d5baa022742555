// Translation models of a few numbers whose kinds of attention have other numbers of layers, and pairs in memory.
#pragma once

#include <c10/core/GradMode.h>

#include <algorithm>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "models.h"
#include "numbers.h"
#include "pairs.h"
#include "task/rows.h"
#include "translators.h"

namespace translation {

using namespace mh;

constexpr int64_t kTarget = 9, kSource = 12;  // entries of the vocabularies

inline model::ModelConfig config_of(const std::string& attention, const std::string& lines = "") {
  return models::configured(
      "[model]\nbackbone = 'encoder-decoder'\nlayers = 2\nencoder_layers = 3\nwidth = 12\nffn = 16\n" + lines +
      "[attention]\nheads = 4\nhead_size = 3\n" + attention);
}

// None of its parameters is what it starts as.
inline std::unique_ptr<model::LanguageModel> built(const model::ModelConfig& config) {
  auto model = model::build_language_model(config, {kTarget, kSource}, at::kCPU);
  model->parameters().initialise(3);
  c10::NoGradGuard no_gradient;
  uint64_t seed = 5;
  for (auto& p : model->parameters().all())
    if (p.traits().trainable) p.master().add_(numbers::normal(p.master().sizes().vec(), seed++), 0.3);
  return model;
}

inline task::Corpus corpus_of(const pairs::Sentences& all) {
  auto tokens = std::make_shared<std::vector<int32_t>>();
  std::vector<uint64_t> ends;
  for (const auto& [from, to] : all)
    for (const pairs::Sentence* side : {&from, &to}) {
      tokens->insert(tokens->end(), side->begin(), side->end());
      tokens->push_back(0);
      ends.push_back(tokens->size());
    }
  const auto read = [tokens](uint64_t first, std::span<int32_t> out) {
    std::copy_n(tokens->begin() + static_cast<int64_t>(first), out.size(), out.begin());
  };
  return task::pairs_of({std::move(ends), read}, 0, 0);
}

// Sentences of 0 to 9 words.
inline pairs::Sentences sentences(int count) { return pairs::some(count, static_cast<int>(kTarget) - 2); }

// One row of the corpus by itself, nothing filled up.
inline task::Batch alone(const task::Corpus& corpus, int64_t pair) {
  const auto& all = std::get<task::Pairs>(corpus);
  return task::load_pairs(all, {task::row_of(all, pair)});
}

using translators::stages;

}  // namespace translation
