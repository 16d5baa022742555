// Shared by the subcommands scan, rank and curve: options, and models with the shard on which they are analysed.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "analysis/heads.h"
#include "analysis/importance.h"
#include "analysis/subject.h"
#include "base/command_line.h"
#include "base/json_types.h"
#include "base/plot.h"
#include "common/subject.h"

namespace CLI {
class App;
}

namespace mh::prune {

// The options of a subcommand.
struct Question : ModelArguments {
  Question() { precision = "fp32", attention = "auto"; }
  std::vector<std::string> files, sets, measures, kinds;
  std::string format = "table", side = "whole", plot;
  bool normalise = false, per_layer = false;
  data::ScoringOptions scoring;
  std::unique_ptr<CommandLineFields> fields;
  void describe(Fields& f) {
    scoring.describe(f);
    scoring.sample.describe(f);
  }
};

// Adds the options that all three subcommands have.
void add_question(CLI::App& app, Question& q);
// Adds the options of subcommands that measure importance and draw plots.
void add_measures(CLI::App& app, Question& q);

// A loaded model with its dataset and options.
struct Asked {
  model::LoadedModel model;
  std::shared_ptr<const task::Dataset> dataset;
  data::ScoringOptions how;
  analysis::Side side;
  analysis::Kinds kinds;  // kinds of attention to analyse; empty: all
  // Returns the subject of an analysis, with a progress bar named `label`. The subject refers to this object.
  analysis::Subject subject(const std::string& label);
};

// The models and the shard of a subcommand. The constructor checks all of them, so that errors appear before long
// computations.
class Asking {
 public:
  // `check` is called for each model and must not run it.
  explicit Asking(const Question& q, const std::function<void(Asked&)>& check = {});
  size_t models() const { return checkpoints_.size(); }
  const std::string& data() const { return text_->name(); }
  Plot* plot() { return plot_.get(); }  // null without --plot
  // Returns model `index`, loading it if needed; valid until the next call with another index.
  Asked& ask(size_t index);

 private:
  const Question& q_;
  std::unique_ptr<Plot> plot_;
  std::vector<std::unique_ptr<io::Checkpoint>> checkpoints_;
  std::unique_ptr<TextSource> text_;
  std::unique_ptr<Asked> asked_;
  size_t index_ = 0;  // index of the model in asked_
};

// Returns the row with the columns of the scoring protocol appended.
nlohmann::ordered_json with_protocol(nlohmann::ordered_json row, const Question& q, const data::ScoringOptions& how);

}  // namespace mh::prune
