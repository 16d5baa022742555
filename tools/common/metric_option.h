// The --metric option, which selects how tools evaluate a model: by perplexity, or by a score of a task.
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
class Option;
}  // namespace CLI

namespace mh {

// Calls options.check(), and throws Error(usage) for a --smooth-value that the method of --smooth does not use,
// whatever the value. `fields`: the options of `options` on the command line.
void check_bleu_options(const CommandLineFields& fields, const metrics::BleuOptions& options);

class MetricOption {
 public:
  // Adds --metric and the options of decoding.
  void add_to(CLI::App& app);
  // Reads the values of the options after parsing. Throws Error(usage) if options of decoding contradict each other or
  // are used with a metric that needs no decoding.
  void store_values();
  const std::vector<CLI::Option*>& decoding_options() const { return fields_->options(); }
  CLI::Option* option() const { return option_; }           // --metric
  const std::string& name() const { return name_; }         // name of the metric and of its table column
  std::string title() const { return score_spec().label; }  // title of the metric's axis in plots
  bool is_perplexity() const { return name_ == kPerplexity; }
  // Throws Error(usage) if the metric is not defined for the dataset (a score of decoded text needs pairs), if
  // `scoring_options` selects a sample of the data, or if the model cannot decode. `scoring_options`: scoring options
  // from the command line. Perplexity, unless --metric states it, is defined for every dataset: of a task without one,
  // the tools compare the loss.
  void check(model::LoadedModel& model, const task::Dataset& dataset, const std::string& shard,
             const data::ScoringOptions& scoring_options) const;
  // Returns the metric of the model on all pairs or rows of the dataset. Must not be called for perplexity. `observer`
  // observes each forward pass and may be null; `progress` is called with numbers of sentences or rows and may be
  // empty. `group`: processes that share the batches; null: one process.
  double compute(model::LoadedModel& model, const task::Dataset& dataset,
                 const std::function<void(int64_t num_completed, int64_t total)>& progress,
                 attention::Observer* observer = nullptr, const distributed::Group* group = nullptr) const;
  // Returns the table columns that describe how text was decoded and scored; an empty object for metrics without
  // decoding.
  nlohmann::ordered_json protocol() const;

  void describe(Fields& f);

 private:
  static constexpr const char* kPerplexity = "perplexity";  // the default
  task::EvaluationOptions evaluation_options() const;
  task::ScoreSpec score_spec() const { return task::score_spec(name_); }

  CLI::Option* option_ = nullptr;
  std::string name_ = kPerplexity;
  task::DecodingOptions decoding_;
  std::unique_ptr<CommandLineFields> fields_;  // options of decoding
};

}  // namespace mh
