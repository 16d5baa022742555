// Adds the options of the subcommands scan, rank and curve, checks the options and loads the models.
#include "session.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <iterator>

#include "analysis/ablation.h"
#include "base/command_line.h"
#include "base/error.h"
#include "base/text.h"
#include "common/processes.h"
#include "nn/ops.h"

namespace mh::prune {

using nlohmann::ordered_json;

CLI::Option* add_side_option(CLI::App& app, std::string& side) {
  std::vector<std::string> names, meanings;
  for (const analysis::SideName& entry : analysis::kSideNames) {
    names.emplace_back(entry.name);
    meanings.push_back(str(entry.name, " (", entry.meaning, ")"));
  }
  return app
      .add_option("--side", side,
                  str("side of a head to ablate, rank or prune in layers that mix heads: ", join_alternatives(meanings),
                      " [whole]"))
      ->type_name("SIDE")
      ->check(one_of(names));
}

CLI::Option* add_unit_option(CLI::App& app, std::string& unit) {
  return app
      .add_option(
          "--unit", unit,
          "unit to ablate, rank or prune: head, or group (the query heads that read one key/value head; its score "
          "is the sum over its heads) [head]")
      ->type_name("UNIT")
      ->check(one_of({std::begin(analysis::kHeadUnitNames), std::end(analysis::kHeadUnitNames)}));
}

void add_common_options(CLI::App& app, MeasureArguments& args) {
  app.add_option("files", args.files, "checkpoints, then a shard; one of these files may be - for standard input")
      ->type_name("MODEL... DATA");
  add_side_option(app, args.side);
  add_list(app, "--kind", args.kinds,
           "kinds of attention whose heads are analysed or pruned, such as decoder.cross [all]", "KIND,...");
  args.format_option = add_format_option(app, args.format);
  add_set_option(app, args.assignments);
  add_model_options(app, args);
  args.fields = std::make_unique<CommandLineFields>(app);
  args.fields->declare(args);
}

void add_plot_option(CLI::App& app, std::string& plot) {
  app.add_option(
         "--plot", plot,
         "output file of a plot (.svg, .png or .pdf); - draws the plot in the terminal instead of printing the table")
      ->type_name("FILE");
}

void add_measure_options(CLI::App& app, MeasureArguments& args) {
  const auto names = analysis::importance_measures().names();
  add_list(app, "--by", args.measures, "measures of importance: " + join(names, ", "), "MEASURE,...")
      ->required()
      ->check(one_of(names));
  app.add_flag("--normalise", args.normalise, "divide the importance scores of each layer by their l2 norm");
  args.per_layer_option = app.add_flag("--per-layer", args.per_layer, "rank the heads of each layer separately");
  add_plot_option(app, args.plot);
}

void MeasureArguments::store_values() {
  fields->store_values(*this);
  refuse_unused_seed(*fields, scoring_options.sample, measures);
}

void MeasureArguments::refuse_table_options(const std::vector<CLI::Option*>& table_options) const {
  if (plot == "-") refuse_options(table_options, "a table with this option", "--plot -, which replaces the table");
}

analysis::AnalysisInput AnalysedModel::analysis_input(const std::string& label) {
  return {*model.model, dataset->corpus(), scoring_options, side, progress_bar(label, "rows"), kinds, group};
}

PruneSession::PruneSession(const MeasureArguments& args, const std::function<void(AnalysedModel&)>& check,
                           const std::string& rank_data)
    : args_(args) {
  start_process();  // before the checks, so that errors name the rank
  if (args.files.size() < 2)
    refuse_usage("", "one or more models, then the data",
                 args.files.empty() ? "none" : str(args.files[0], ", without data"), "name a shard after the models");
  refuse_repeated_standard_input("", args.files);
  refuse_output_onto_input("-", args.files);
  std::vector<std::string> inputs = args.files;
  if (!rank_data.empty()) inputs.push_back(rank_data);
  group_ = &join_evaluation(inputs, args);
  if (!args.plot.empty()) {
    refuse_output_onto_input(args.plot, args.files);
    plot_ = std::make_unique<Plot>(args.plot);
  }
  analysis::check_unit(analysis::head_unit_named(args.unit), analysis::side_named(args.side), "--unit");
  nn::prepare_cpu(args.threads);
  for (size_t i = 0; i + 1 < args.files.size(); ++i)
    checkpoints_.push_back(std::make_unique<io::Checkpoint>(args.files[i]));
  shard_ = std::make_unique<ShardSource>(args.files.back());
  for (size_t i = 0; i < num_models(); ++i) {
    AnalysedModel& analysed_model = load(i);
    analysis::all_heads(*analysed_model.model.model, analysed_model.side,
                        analysed_model.kinds);  // throws if a layer has no separate heads on this side
    for (const std::string& measure : args.measures)
      analysis::check_importance(measure, "--by", *analysed_model.model.model, analysed_model.side,
                                 analysed_model.kinds);
    if (check) check(analysed_model);
  }
}

analysis::LossValue PruneSession::loss_value() const { return analysis::loss_value_of(shard_->task()); }

AnalysedModel& PruneSession::load(size_t index) {
  if (analysed_model_ != nullptr && model_index_ == index) return *analysed_model_;
  analysed_model_.reset();
  const bool reads_masters = std::ranges::any_of(args_.measures, [](const std::string& measure) {
    return analysis::importance_measures().make(measure, "--by")->reads_masters();
  });
  model::LoadedModel model =
      load_with_options(args_, *checkpoints_[index], reads_masters ? model::Masters::present : model::Masters::absent,
                        args_.assignments, checkpoints_.size() > 1);
  auto dataset = shard_->labelled_dataset_for(model);
  const auto scoring_options = resolved_scoring_options(model, args_.scoring_options, *dataset);
  const auto kinds = analysis::kinds_named(args_.kinds, model.model->parameters(), "--kind");
  analysed_model_ = std::make_unique<AnalysedModel>(
      AnalysedModel{std::move(model), std::move(dataset), scoring_options, analysis::side_named(args_.side),
                    analysis::head_unit_named(args_.unit), kinds, group_});
  model_index_ = index;
  return *analysed_model_;
}

void add_num_scored(ordered_json& row, analysis::LossValue loss_value, int64_t num_scored) {
  if (loss_value == analysis::LossValue::perplexity) row["tokens"] = num_scored;
  else row["scored"] = num_scored;
}

ordered_json append_protocol(ordered_json row, const MeasureArguments& args,
                             const data::ScoringOptions& scoring_options) {
  row.update({{"block", scoring_options.sequence_length},
              {"context", scoring_options.context},
              {"memory", scoring_options.memory},
              {"streams", scoring_options.streams},
              {"blocks", scoring_options.sample.blocks},
              {"seed", scoring_options.sample.seed},
              {"precision", args.precision},
              {"set", join(args.assignments, " ")},
              {"protocol", data::protocol_of(scoring_options)}});
  if (scoring_options.has_begin_token) row["begin"] = name_of(scoring_options.begin);
  return row;
}

}  // namespace mh::prune
