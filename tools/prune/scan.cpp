// mh-prune scan MODEL… DATA: prints ablation scans, the loss of a model without each of its heads.
#include "analysis/scan.h"

#include <algorithm>
#include <limits>

#include "analysis/importance.h"
#include "analysis/percent_change.h"
#include "base/error.h"
#include "base/table.h"
#include "common/metric_option.h"
#include "prune.h"
#include "session.h"

namespace mh::prune {

using analysis::AttentionKind;
using analysis::HeadSet;
using nlohmann::ordered_json;

namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

struct ScanArguments : MeasureArguments {
  std::vector<std::string> heads;
  bool layers = false, all_but_one = false, summary = false;
  MetricOption metric;
};

// Returns the heads that --heads names; without --heads all heads of the kinds of --kind. With --unit group, returns
// groups.
HeadSet select_heads(const ScanArguments& args, AnalysedModel& analysed_model) {
  model::LanguageModel& model = *analysed_model.model.model;
  const bool has_groups = analysed_model.unit == analysis::HeadUnit::group;
  const HeadSet available_heads = has_groups ? analysis::all_groups(model, analysed_model.kinds)
                                             : analysis::all_heads(model, analysed_model.side, analysed_model.kinds);
  if (args.heads.empty()) return available_heads;
  std::vector<AttentionKind> kinds;
  for (const auto& [kind, heads] : available_heads) kinds.push_back(kind);
  const HeadSet named_heads = analysis::parse_heads(args.heads, kinds, "--heads", !args.kinds.empty());
  if (has_groups) analysis::heads_of_groups(model, named_heads, "--heads");
  else analysis::check_heads(model, analysed_model.side, named_heads, "--heads");
  return named_heads;
}

// Returns the name of the column of the scanned value: the metric, or without --metric the value of the loss.
std::string value_column(const ScanArguments& args, analysis::LossValue loss_value) {
  return args.metric.is_perplexity() ? analysis::name_of(loss_value) : args.metric.name();
}

analysis::Scan run_scan(const ScanArguments& args, AnalysedModel& analysed_model, analysis::LossValue loss_value) {
  analysis::MetricFunction metric;
  if (!args.metric.is_perplexity())
    metric = [&](const std::function<void(int64_t, int64_t)>& progress) {
      return args.metric.compute(analysed_model.model, *analysed_model.dataset, progress, nullptr,
                                 analysed_model.group);
    };
  auto cases =
      analysis::scan_cases(*analysed_model.model.model, analysed_model.side, analysed_model.kinds,
                           {select_heads(args, analysed_model), args.layers, args.all_but_one, analysed_model.unit});
  return analysis::scan_heads(analysed_model.analysis_input("scan"), std::move(cases), metric, loss_value);
}

// Prints a table row for the full model, then a table row for each ablated model.
void print_cases(const ScanArguments& args, Table& table, const AnalysedModel& analysed_model,
                 const analysis::Scan& scan, analysis::LossValue loss_value) {
  // A layer or head of -1 means none, which the table shows as NaN, so that the columns stay numeric.
  auto number_or_nan = [&](int64_t x) { return x < 0 ? ordered_json(kNaN) : ordered_json(x); };
  // `score_index`: 0 for the full model, i + 1 for scan.cases[i].
  auto print = [&](ordered_json row, size_t score_index, double deviation) {
    const task::NllSum& score = scan.scores[score_index];
    const double value = scan.values[score_index], full_value = scan.full_value();
    if (args.metric.is_perplexity() && loss_value == analysis::LossValue::perplexity)
      row["nll"] = analysis::nll_per_token(score);
    row.update({{value_column(args, loss_value), value},
                {"difference", value - full_value},
                {"relative", analysis::percent_change(value, full_value)},
                {"layer_deviation", deviation}});
    if (args.metric.is_perplexity()) add_num_scored(row, loss_value, score.num_tokens);
    row.update(args.metric.protocol());
    table.print_row(append_protocol(std::move(row), args, analysed_model.scoring_options));
  };
  auto location_columns = [&](const std::string& kind, int64_t layer, int64_t head, const char* mode) {
    return ordered_json{{"model", analysed_model.model.name}, {"kind", kind},      {"layer", number_or_nan(layer)},
                        {"head", number_or_nan(head)},        {"side", args.side}, {"mode", mode}};
  };
  print(location_columns("", -1, -1, "full"), 0, kNaN);
  for (size_t case_index = 0; case_index < scan.cases.size(); ++case_index) {
    const analysis::ScanCase& c = scan.cases[case_index];
    print(location_columns(name_of(c.kind), c.layer, c.head, name_of(c.mode)), case_index + 1,
          scan.layer_deviation(case_index));
  }
}

// Adds a heat map of the differences from the full model for each kind of attention and each ablation mode.
void add_heat_maps(const ScanArguments& args, Plot& plot, const std::string& model, const analysis::Scan& scan,
                   analysis::LossValue loss_value) {
  for (const auto& [key, rows] : scan.head_differences()) {
    const auto& [kind, mode] = key;
    plot.add(HeatMap{
        str(model, ", ", name_of(kind), ", ", name_of(mode), ", difference of ", value_column(args, loss_value)),
        args.unit, "layer", rows});
  }
}

// The results of one layer of one model in one ablation mode, which become a table row of --summary.
struct LayerAblation {
  size_t model_index;  // index of the model on the command line, from 0
  std::string model;
  double full_value = 0;               // metric of the full model
  std::vector<double> ablated_values;  // metric of each ablated model
  data::ScoringOptions scoring_options;
  int64_t num_scored = 0;  // number of scored targets
};
using LayerAblations = std::map<analysis::ScanLayerKey, std::vector<LayerAblation>>;

// Prints one row per layer, ablation mode and model, with adjacent rows for the same layer and mode. The column
// "change" is the percent change of the deviation relative to the first model; NaN for the first model itself, and if
// the first model lacks the layer or has the deviation 0.
void print_summary(const ScanArguments& args, Table& table, const LayerAblations& ablations,
                   analysis::LossValue loss_value) {
  for (const auto& [scan_layer, models] : ablations)
    for (const LayerAblation& ablation : models) {
      const auto& [kind, layer, mode] = scan_layer;
      const analysis::LayerComparison comparison =
          analysis::compare_layer(ablation.full_value, ablation.ablated_values);
      const LayerAblation& first_ablation = models.front();
      ordered_json row{
          {"kind", name_of(kind)},
          {"layer", layer},
          {"model", ablation.model},
          {"side", args.side},
          {"mode", name_of(mode)},
          {"heads", ablation.ablated_values.size()},
          {value_column(args, loss_value), ablation.full_value},
          {"difference", comparison.difference},
          {"relative", comparison.percent_difference},
          {"deviation", comparison.deviation},
          {"change", ablation.model_index == 0 || first_ablation.model_index > 0
                         ? kNaN
                         : analysis::percent_change(comparison.deviation,
                                                    analysis::sample_deviation(first_ablation.ablated_values))}};
      if (args.metric.is_perplexity()) add_num_scored(row, loss_value, ablation.num_scored);
      row.update(args.metric.protocol());
      table.print_row(append_protocol(std::move(row), args, ablation.scoring_options));
    }
}

void scan(const ScanArguments& args) {
  if (args.summary && args.layers)
    refuse_usage("--summary", "no --layers, since the summary is computed over heads", "--layers",
                 "leave --summary or --layers out");
  PruneSession session(args, [&](AnalysedModel& analysed_model) {
    select_heads(args, analysed_model);
    args.metric.check(analysed_model.model, *analysed_model.dataset, args.files.back(), args.scoring_options);
  });
  const analysis::LossValue loss_value = session.loss_value();
  Table table(Table::format_named(args.format), session.plot() != nullptr);
  LayerAblations ablations;
  for (size_t i = 0; i < session.num_models(); ++i) {
    AnalysedModel& analysed_model = session.load(i);
    const analysis::Scan scan = run_scan(args, analysed_model, loss_value);
    analysed_model.model.require_unchanged_file();
    if (session.plot() != nullptr) add_heat_maps(args, *session.plot(), analysed_model.model.name, scan, loss_value);
    if (args.plot == "-") continue;
    if (!args.summary) print_cases(args, table, analysed_model, scan, loss_value);
    for (const auto& [scan_layer, ablated_values] : scan.values_by_layer)
      ablations[scan_layer].push_back({i, analysed_model.model.name, scan.full_value(), ablated_values,
                                       analysed_model.scoring_options, scan.scores[0].num_tokens});
  }
  if (args.summary) print_summary(args, table, ablations, loss_value);
  if (session.plot() != nullptr) session.plot()->draw();
}

}  // namespace

void add_scan_subcommand(CLI::App& app, Jobs& jobs) {
  CLI::App* sub = app.add_subcommand("scan", "for each head, print the loss of the model without this head");
  auto args = std::make_shared<ScanArguments>();
  add_common_options(*sub, *args);
  add_list(*sub, "--heads", args->heads,
           "heads to ablate, or groups with --unit group, as LAYER:HEAD or KIND:LAYER:HEAD, counted from 0, such as "
           "0:1,0:3,5:7 or decoder.self:0:1 [all]",
           "LAYER:HEAD,...");
  CLI::Option* layers_option =
      sub->add_flag("--layers", args->layers, "add a row for each layer, with all of its heads ablated together");
  sub->add_flag("--all-but-one", args->all_but_one,
                "add a row for each head, with all other heads of its layer ablated");
  CLI::Option* summary_option =
      sub->add_flag("--summary", args->summary,
                    "print one row per layer and model with the standard deviation of the metric over the ablated "
                    "heads, instead of one row per head");
  add_plot_option(*sub, args->plot);
  add_unit_option(*sub, args->unit);
  args->metric.add_to(*sub);
  jobs.push_back({sub, [args, layers_option, summary_option] {
                    args->store_values();
                    args->refuse_table_options({args->format_option, layers_option, summary_option});
                    args->metric.store_values();
                    ignore_broken_pipe([&] { scan(*args); });
                  }});
}

}  // namespace mh::prune
