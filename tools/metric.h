// What a model is judged by: perplexity, or BLEU of what it makes of a shard's sources.
#pragma once

#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "attention/stage.h"
#include "base/command_line.h"
#include "model/load.h"
#include "task/scoring.h"
#include "task/translation.h"

namespace mh {

class Metric {
 public:
  // Adds --metric and, for bleu, the options of a search and of BLEU.
  void add_to(CLI::App& app);
  // After parsing. Error(usage) for options of a search without one.
  void take();
  bool is_bleu() const { return name_ == "bleu"; }
  // Error(usage) for BLEU of a text, of a sample, or of a model that cannot decode. `how`: as given.
  void check(model::LoadedModel& m, const task::Corpus& corpus, const std::string& shard,
             const task::ScoringOptions& how) const;
  // Of all pairs. `observer` sees each pass, and may be null.
  double bleu(model::LoadedModel& m, const task::Corpus& corpus, const std::string& shard,
              attention::Observer* observer = nullptr) const;
  // The columns that say how it was made.
  nlohmann::ordered_json protocol() const;

  void describe(Fields& f);

 private:
  std::string name_ = "perplexity";
  task::TranslationOptions translation_;
  task::BleuOptions bleu_;
  std::unique_ptr<CommandLineFields> fields_;
  std::vector<const CLI::Option*> options_;  // of a search and of BLEU
};

}  // namespace mh
