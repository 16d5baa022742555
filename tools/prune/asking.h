// What scan, rank and curve share: models that are asked about a text.
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

// Options that all of them take.
void add_question(CLI::App& app, Question& q);
// Those of the ones that measure, and draw.
void add_measures(CLI::App& app, Question& q);

// A model and the text, ready to be asked.
struct Asked {
  model::LoadedModel model;
  std::shared_ptr<const task::Dataset> dataset;
  data::ScoringOptions how;
  analysis::Side side;
  analysis::Kinds kinds;  // whose heads are asked about; none: all
  // With a progress bar of this name. It refers to this.
  analysis::Subject subject(const std::string& label);
};

// The files of a question. All that can be known about them is checked before there is work.
class Asking {
 public:
  // `check` looks at each model, without running it.
  explicit Asking(const Question& q, const std::function<void(Asked&)>& check = {});
  size_t models() const { return checkpoints_.size(); }
  const std::string& data() const { return text_->name(); }
  Plot* plot() { return plot_.get(); }  // null without --plot
  Asked& ask(size_t index);             // until the next one is asked for

 private:
  const Question& q_;
  std::unique_ptr<Plot> plot_;
  std::vector<std::unique_ptr<io::Checkpoint>> checkpoints_;
  std::unique_ptr<TextSource> text_;
  std::unique_ptr<Asked> asked_;
  size_t index_ = 0;  // of asked_
};

// A row, and behind it the columns that say what its figures were measured on.
nlohmann::ordered_json with_protocol(nlohmann::ordered_json row, const Question& q, const data::ScoringOptions& how);

}  // namespace mh::prune
