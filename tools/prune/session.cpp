// Adds the options of scan, rank and curve, checks them and loads the models.
#include "session.h"

#include <CLI/CLI.hpp>
#include <algorithm>

#include "analysis/ablation.h"
#include "base/command_line.h"
#include "base/error.h"
#include "base/text.h"
#include "nn/ops.h"

namespace mh::prune {

using nlohmann::ordered_json;

void add_common_options(CLI::App& app, MeasureArguments& q) {
  app.add_option("files", q.files, "checkpoints, then a shard; one of these files may be - for standard input")
      ->type_name("MODEL... DATA");
  app.add_option("--side", q.side,
                 "side of a head in layers that mix heads: score (queries and keys), value (values), output (block of "
                 "the output projection) or whole (all of them) [whole]")
      ->type_name("SIDE")
      ->check(one_of({"whole", "score", "value", "output"}));
  add_list(app, "--kind", q.kinds, "kinds of attention whose heads are analysed or pruned, such as decoder.cross [all]",
           "KIND,...");
  add_format(app, q.format);
  add_sets(app, q.sets);
  add_model_options(app, q);
  q.fields = std::make_unique<CommandLineFields>(app);
  q.fields->declare(q);
}

void add_measure_options(CLI::App& app, MeasureArguments& q) {
  const auto names = analysis::importances().names();
  add_list(app, "--by", q.measures, "measures of importance: " + join(names, ", "), "MEASURE,...")
      ->required()
      ->check(one_of(names));
  app.add_flag("--normalise", q.normalise, "divide the importance scores of each layer by their l2 norm");
  app.add_flag("--per-layer", q.per_layer, "rank the heads of each layer separately");
  app.add_option(
         "--plot", q.plot,
         "output file of a plot (.svg, .png or .pdf); - draws the plot in the terminal instead of printing the table")
      ->type_name("FILE");
}

analysis::AnalysisInput LoadedTarget::analysis_input(const std::string& label) {
  return {*model.model, dataset->corpus(), scoring, side, progress_bar(label, "rows"), kinds};
}

PruneSession::PruneSession(const MeasureArguments& q, const std::function<void(LoadedTarget&)>& check) : q_(q) {
  if (q.files.size() < 2)
    throw Error(Exit::usage,
                Problem{"mh-prune", "one or more models, then the data",
                        q.files.empty() ? "none" : str(q.files[0], ", without data"), "name a shard after the models"});
  if (std::count(q.files.begin(), q.files.end(), "-") > 1)
    throw Error(Exit::usage, Problem{"mh-prune", "standard input (-) for at most one file", "- more than once", ""});
  refuse_output_onto_input("-", q.files);
  if (!q.plot.empty()) {
    refuse_output_onto_input(q.plot, q.files);
    plot_ = std::make_unique<Plot>(q.plot);
  }
  nn::prepare_cpu(q.threads);
  for (size_t i = 0; i + 1 < q.files.size(); ++i) checkpoints_.push_back(std::make_unique<io::Checkpoint>(q.files[i]));
  text_ = std::make_unique<TextSource>(q.files.back());
  for (size_t i = 0; i < models(); ++i) {
    LoadedTarget& target = load(i);
    analysis::all_heads(*target.model.model, target.side, target.kinds);  // throws if a layer has no heads on this side
    for (const std::string& measure : q.measures)
      analysis::check_importance(measure, "--by", *target.model.model, target.side, target.kinds);
    if (check) check(target);
  }
}

LoadedTarget& PruneSession::load(size_t index) {
  if (loaded_ != nullptr && index_ == index) return *loaded_;
  loaded_.reset();
  model::LoadedModel model = load_with_options(q_, *checkpoints_[index], q_.sets);
  auto dataset = text_->labelled_dataset_for(model);
  const auto scoring = scoring_for(model, q_.scoring, *dataset);
  const auto kinds = analysis::kinds_named(q_.kinds, model.model->parameters(), "--kind");
  loaded_ = std::make_unique<LoadedTarget>(
      LoadedTarget{std::move(model), std::move(dataset), scoring, analysis::side_named(q_.side), kinds});
  index_ = index;
  return *loaded_;
}

ordered_json append_protocol(ordered_json row, const MeasureArguments& q, const data::ScoringOptions& scoring) {
  row.update({{"block", scoring.block},
              {"context", scoring.context},
              {"memory", scoring.memory},
              {"streams", scoring.streams},
              {"blocks", scoring.sample.blocks},
              {"seed", scoring.sample.seed},
              {"precision", q.precision},
              {"set", join(q.sets, " ")},
              {"protocol", data::protocol_of(scoring)}});
  return row;
}

}  // namespace mh::prune
