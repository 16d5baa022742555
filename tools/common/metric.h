// The --metric option, by which tools evaluate a model: perplexity, BLEU of its translations of a shard, or a score of
// a task.
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
  // Adds --metric and, for BLEU, the options of beam search and of BLEU.
  void add_to(CLI::App& app);
  // Reads the values of the options after parsing. Throws Error(usage) if an option of beam search or BLEU is used with
  // a metric other than BLEU.
  void store_values();
  const std::string& name() const { return name_; }  // name of the metric and of its table column
  const char* title() const;                         // title of the metric's axis in plots
  bool is_perplexity() const { return name_ == "perplexity"; }
  // Throws Error(usage) if the metric is not defined for the dataset (BLEU needs pairs), if `how` selects a sample of
  // the data, or if the model cannot decode. `how`: scoring options from the command line. Does nothing for perplexity.
  void check(model::LoadedModel& m, const task::Dataset& dataset, const std::string& shard,
             const data::ScoringOptions& scoring) const;
  // Returns the metric of the model on all pairs or rows of the dataset. Must not be called for perplexity. `observer`
  // observes each forward pass and may be null; `progress` is called with numbers of sentences or rows and may be
  // empty.
  double compute(model::LoadedModel& m, const task::Dataset& dataset,
                 const std::function<void(int64_t done, int64_t all)>& progress,
                 attention::Observer* observer = nullptr) const;
  // Returns the table columns that describe how BLEU was computed; an empty object for other metrics.
  nlohmann::ordered_json protocol() const;

  void describe(Fields& f);

 private:
  task::EvaluationOptions options() const;
  bool is_bleu() const { return name_ == "bleu"; }

  std::string name_ = "perplexity";
  task::TranslationOptions translation_;
  metrics::BleuOptions bleu_;
  std::unique_ptr<CommandLineFields> fields_;  // options of beam search and BLEU
};

}  // namespace mh
