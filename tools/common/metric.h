// What a model is judged by: perplexity, BLEU of what it makes of a shard's sources, or a score of a task.
#pragma once

#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "attention/stage.h"
#include "base/command_line.h"
#include "model/load.h"
#include "task/task.h"

namespace CLI {
class App;
}

namespace mh {

class Metric {
 public:
  // Adds --metric and, for bleu, the options of a search and of BLEU.
  void add_to(CLI::App& app);
  // After parsing. Error(usage) for options of a search without one.
  void take();
  const std::string& name() const { return name_; }  // that of its column
  const char* title() const;                         // of an axis
  bool is_perplexity() const { return name_ == "perplexity"; }
  // Error(usage) for BLEU of what is no pairs, a score that the examples have not, a sample, or a model that cannot
  // decode. `how`: as given.
  void check(model::LoadedModel& m, const task::Dataset& dataset, const std::string& shard,
             const data::ScoringOptions& how) const;
  // Of all pairs or rows; not of perplexity. `observer` sees each pass, and may be null; `progress` is told of
  // sentences or rows, and may be left out.
  double of(model::LoadedModel& m, const task::Dataset& dataset,
            const std::function<void(int64_t done, int64_t all)>& progress,
            attention::Observer* observer = nullptr) const;
  // The columns that say how it was made; none but for BLEU.
  nlohmann::ordered_json protocol() const;

  void describe(Fields& f);

 private:
  task::EvaluationOptions options() const;
  bool is_bleu() const { return name_ == "bleu"; }

  std::string name_ = "perplexity";
  task::TranslationOptions translation_;
  metrics::BleuOptions bleu_;
  std::unique_ptr<CommandLineFields> fields_;  // options of a search and of BLEU
};

}  // namespace mh
