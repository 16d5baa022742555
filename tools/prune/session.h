// The options of the subcommands scan, rank and curve, and the session that loads the models and the shard.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "analysis/ablation.h"
#include "analysis/analysis_input.h"
#include "analysis/groups.h"
#include "analysis/heads.h"
#include "analysis/importance.h"
#include "base/command_line.h"
#include "base/json_types.h"
#include "base/plot.h"
#include "common/shard_source.h"

namespace CLI {
class App;
}

namespace mh::prune {

// The options of the subcommands scan, rank and curve; scan has no --by, --normalise or --per-layer.
struct MeasureArguments : ModelArguments {
  MeasureArguments() { precision = "fp32", attention_path = "auto"; }
  std::vector<std::string> files, assignments, measures, kinds;
  std::string format = "table", side = "whole", unit = "head", plot;
  bool normalise = false, per_layer = false;
  data::ScoringOptions scoring_options;
  std::unique_ptr<CommandLineFields> fields;
  CLI::Option *format_option = nullptr, *per_layer_option = nullptr;
  void describe(Fields& f) {
    scoring_options.describe(f);
    scoring_options.sample.describe(f);
  }
  // Stores the values of `fields`. Throws Error(usage) for a --seed that no sample and no measure uses.
  void store_values();
  // Throws Error(usage) for options of the table, `table_options`, if --plot - draws a plot in place of the table.
  void refuse_table_options(const std::vector<CLI::Option*>& table_options) const;
};

// Adds the option --side, with the values of analysis::kSideNames.
CLI::Option* add_side_option(CLI::App& app, std::string& side);
// Adds the option --unit, with the values of analysis::kHeadUnitNames.
CLI::Option* add_unit_option(CLI::App& app, std::string& unit);
// Adds the options that scan, rank and curve have in common.
void add_common_options(CLI::App& app, MeasureArguments& args);
// Adds the option --plot, which scan, rank and curve share.
void add_plot_option(CLI::App& app, std::string& plot);
// Adds the options of rank and curve, which measure importance: the measures, their order and --plot.
void add_measure_options(CLI::App& app, MeasureArguments& args);

// A loaded model, with the dataset and the options of its analysis.
struct AnalysedModel {
  model::LoadedModel model;
  std::shared_ptr<const task::Dataset> dataset;
  data::ScoringOptions scoring_options;
  analysis::SideSelection side;
  analysis::HeadUnit unit;
  analysis::Kinds kinds;                      // kinds of attention to analyse; empty: all
  const distributed::Group* group = nullptr;  // processes that share the mini-batches of an ablation; null: one process
  // Returns the input of an analysis, with a progress bar called `label`. The result refers to this object, which must
  // outlive the result.
  analysis::AnalysisInput analysis_input(const std::string& label);
};

// The models and the shard on the command line. The constructor opens and checks all of them, so that errors appear
// before long computations.
class PruneSession {
 public:
  // `check`: additional checks of a loaded model, which must not run the model; called for each model.
  // `rank_data`: path of a further shard that the subcommand reads; empty: none.
  explicit PruneSession(const MeasureArguments& args, const std::function<void(AnalysedModel&)>& check = {},
                        const std::string& rank_data = "");
  size_t num_models() const { return checkpoints_.size(); }
  const std::string& shard_name() const { return shard_->name(); }
  // Returns the value of the loss that tables compare: perplexity for a text or pairs, the mean loss for other shards.
  analysis::LossValue loss_value() const;
  Plot* plot() { return plot_.get(); }  // the plot of --plot; null without --plot
  // Returns model `index`, which is loaded if necessary; the reference is valid until the next call with another index.
  AnalysedModel& load(size_t index);

 private:
  const MeasureArguments& args_;
  std::unique_ptr<Plot> plot_;
  std::vector<std::unique_ptr<io::Checkpoint>> checkpoints_;
  std::unique_ptr<ShardSource> shard_;
  std::unique_ptr<AnalysedModel> analysed_model_;
  size_t model_index_ = 0;  // command-line index of the model that analysed_model_ holds
  const distributed::Group* group_ = nullptr;
};

// Adds the number of scored targets to `row`: the column "tokens" for perplexity, otherwise the column "scored".
void add_num_scored(nlohmann::ordered_json& row, analysis::LossValue loss_value, int64_t num_scored);

// Returns `row` with the columns of the scoring protocol appended.
nlohmann::ordered_json append_protocol(nlohmann::ordered_json row, const MeasureArguments& args,
                                       const data::ScoringOptions& scoring_options);

}  // namespace mh::prune
