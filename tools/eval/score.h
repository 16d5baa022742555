// What mh-eval MODEL... DATA does with a shard: scores, translations and predictions.
#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "eval.h"
#include "metrics/bleu.h"
#include "task/token_score.h"
#include "task/translator.h"
#include "text/lines.h"

namespace mh::eval {

// Translations of a shard of pairs, and what they are compared with.
struct DecodeJob {
  bool wanted = false;
  std::string hypotheses, references;  // files; the second empty: the shard's targets
  task::TranslationOptions translation;
  metrics::BleuOptions bleu;
  std::shared_ptr<const text::Lines> lines;  // of `references`
  void describe(Fields& f);
  // Before a model is read: refuses options, and reads the references.
  void start();
  void check(const task::Dataset& dataset, const std::string& shard) const;
};

// Predictions for a shard of examples.
struct ExamplesJob {
  std::string predictions, best;  // files
  void check(const std::vector<std::string>& files) const;
  // Whether standard output takes the scores; else predictions take it.
  bool prints_scores() const { return predictions != "-" && best != "-"; }
};

struct ScoreJob {
  std::shared_ptr<Arguments> shared;
  std::vector<std::string> files;  // models, then the shard
  std::string per_token;           // file
  data::ScoringOptions scoring;
  DecodeJob decoding;
  ExamplesJob examples;
};

// Returns the scores of a model on examples, and writes its predictions.
nlohmann::ordered_json score_examples(const ScoreJob& job, const TextSource& source, model::LoadedModel& m,
                                      const task::Dataset& dataset);

// Writes the hypotheses to `file`, unless it is empty; returns the columns of BLEU.
nlohmann::ordered_json decode(const DecodeJob& job, model::LoadedModel& m, const data::Pairs& pairs,
                              const std::string& shard, const std::string& file);

}  // namespace mh::eval
