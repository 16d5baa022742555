// mh-prune curve --by MEASURE MODEL… DATA: prints pruning curves, the loss of a model as its heads are ablated, the
// least important first.
#include "analysis/curve.h"

#include "base/error.h"
#include "base/table.h"
#include "common/metric_option.h"
#include "prune.h"
#include "session.h"

namespace mh::prune {

using nlohmann::ordered_json;

namespace {

struct CurveArguments : MeasureArguments {
  std::string step = "10%", rank_data;
  bool rerank = false;
  MetricOption metric;
};

// Adds the table columns of the loss at one point of a curve.
void add_comparison(ordered_json& row, const MetricOption& metric, const analysis::CurveComparison& comparison,
                    analysis::LossValue loss_value) {
  row["heads_gone"] = comparison.num_masked_heads;
  if (loss_value == analysis::LossValue::perplexity)
    row.update({{"nll", comparison.nll}, {"perplexity", comparison.loss_value}});
  else row["loss"] = comparison.loss_value;
  row.update({{"difference", comparison.loss_difference}, {"relative", comparison.loss_percent_difference}});
  if (metric.is_perplexity()) return;
  row[metric.name()] = comparison.metric_value;
  row[metric.name() + "_difference"] = comparison.metric_difference;
  row.update(metric.protocol());
}

void draw_curves(CurveArguments& args) {
  analysis::CurveOptions options{analysis::parse_fraction(args.step, "--step"), args.per_layer, args.rerank,
                                 args.normalise, analysis::head_unit_named(args.unit)};
  if (options.step < 0.001) refuse_usage("--step", "at least 0.1%", args.step, "raise --step");
  if (args.rank_data == "-") {
    std::vector<std::string> inputs = args.files;
    inputs.push_back(args.rank_data);
    refuse_repeated_standard_input("--rank-data", inputs);
  }
  PruneSession session(
      args,
      [&](AnalysedModel& analysed_model) {
        args.metric.check(analysed_model.model, *analysed_model.dataset, args.files.back(), args.scoring_options);
      },
      args.rank_data);
  if (!args.rank_data.empty()) {
    refuse_output_onto_input("-", {args.rank_data});
    if (!args.plot.empty()) refuse_output_onto_input(args.plot, {args.rank_data});
  }
  const auto rank_source = args.rank_data.empty() ? nullptr : std::make_unique<ShardSource>(args.rank_data);
  const auto rank_dataset = [&](const AnalysedModel& analysed_model) {
    return rank_source == nullptr ? analysed_model.dataset : rank_source->labelled_dataset_for(analysed_model.model);
  };
  for (size_t i = 0; rank_source != nullptr && i < session.num_models(); ++i) rank_dataset(session.load(i));
  Table table(Table::format_named(args.format), session.plot() != nullptr);
  const analysis::LossValue loss_value = session.loss_value();
  Chart chart{
      "", "ablated heads, %", args.metric.is_perplexity() ? analysis::name_of(loss_value) : args.metric.title(), {}};
  for (size_t i = 0; i < session.num_models(); ++i) {
    AnalysedModel& analysed_model = session.load(i);
    const auto dataset = rank_dataset(analysed_model);
    const auto rank_scoring = resolved_scoring_options(analysed_model.model, args.scoring_options, *dataset);
    for (const std::string& measure : args.measures) {
      const analysis::AnalysisInput loss_input = analysed_model.analysis_input("curve");
      const analysis::AnalysisInput rank_input{
          *analysed_model.model.model,   dataset->corpus(),    rank_scoring,        analysed_model.side,
          progress_bar(measure, "rows"), analysed_model.kinds, analysed_model.group};
      Curve curve{str(session.num_models() > 1 ? analysed_model.model.name + ", " : "", measure), {}, {}};
      std::function<double()> metric;
      if (!args.metric.is_perplexity())
        metric = [&] {
          return args.metric.compute(analysed_model.model, *analysed_model.dataset, progress_bar(measure, "rows"),
                                     nullptr, analysed_model.group);
        };
      analysis::CurveComparer comparer(loss_input, metric, loss_value);
      for (const auto& point : analysis::pruning_curve(loss_input, rank_input, measure, options)) {
        const analysis::CurveComparison comparison = comparer.compare(point);
        analysed_model.model.require_unchanged_file();
        curve.x.push_back(100 * point.fraction);
        curve.y.push_back(comparison.metric_value);
        if (args.plot == "-") continue;
        ordered_json row{{"model", analysed_model.model.name},
                         {"measure", measure},
                         {"side", args.side},
                         {"order", args.per_layer ? "per-layer" : "global"},
                         {"normalised", args.normalise},
                         {"reranked", args.rerank},
                         {"rank_data", rank_source != nullptr ? rank_source->name() : session.shard_name()},
                         {"fraction", point.fraction}};
        add_comparison(row, args.metric, comparison, loss_value);
        add_num_scored(row, loss_value, point.score.num_tokens);
        table.print_row(append_protocol(std::move(row), args, analysed_model.scoring_options));
      }
      chart.curves.push_back(std::move(curve));
    }
  }
  if (session.plot() == nullptr) return;
  session.plot()->add(chart);
  session.plot()->draw();
}

}  // namespace

void add_curve_subcommand(CLI::App& app, Jobs& jobs) {
  CLI::App* sub = app.add_subcommand(
      "curve", "print the loss of a model as its heads are ablated step by step, the least important first");
  auto args = std::make_shared<CurveArguments>();
  add_common_options(*sub, *args);
  add_measure_options(*sub, *args);
  sub->add_option("--step", args->step, "percentage of the heads that each step adds to the ablated heads [10%]")
      ->type_name("P%");
  sub->add_flag("--rerank", args->rerank, "measure importance again after each step, without the ablated heads");
  sub->add_option("--rank-data", args->rank_data, "shard on which importance is measured [the scored shard]")
      ->type_name("SHARD");
  add_unit_option(*sub, args->unit);
  args->metric.add_to(*sub);
  jobs.push_back({sub, [args] {
                    args->store_values();
                    args->refuse_table_options({args->format_option});
                    args->metric.store_values();
                    ignore_broken_pipe([&] { draw_curves(*args); });
                  }});
}

}  // namespace mh::prune
