// mh-prune curve --by MEASURE MODEL… DATA: pruning curves, the loss of a model as its least important heads are masked.
#include "analysis/curve.h"

#include <algorithm>

#include "base/error.h"
#include "base/table.h"
#include "common/metric.h"
#include "prune.h"
#include "session.h"

namespace mh::prune {

using nlohmann::ordered_json;

namespace {

struct Curves : MeasureArguments {
  std::string step = "10%", rank_data;
  bool rerank = false;
  Metric metric;
};

// Adds the table columns of the loss at one point of a curve.
void add_loss(ordered_json& row, const Metric& metric, const analysis::CurveLoss& loss) {
  row.update({{"heads_gone", loss.heads},
              {"nll", loss.nll},
              {"perplexity", loss.perplexity},
              {"difference", loss.difference},
              {"relative", loss.relative}});
  if (metric.is_perplexity()) return;
  row[metric.name()] = loss.value;
  row[metric.name() + "_difference"] = loss.value_difference;
  row.update(metric.protocol());
}

void draw_curves(Curves& c) {
  analysis::CurveOptions options{analysis::parse_fraction(c.step, "--step"), c.per_layer, c.rerank, c.normalise};
  if (options.step < 0.001) throw Error(Exit::usage, Problem{"--step", "at least 0.1%", c.step, ""});
  if (!c.rank_data.empty() && c.rank_data == "-" && std::count(c.files.begin(), c.files.end(), "-") > 0)
    throw Error(Exit::usage, Problem{"--rank-data", "standard input (-) for at most one file", "- more than once", ""});
  PruneSession session(
      c, [&](LoadedTarget& target) { c.metric.check(target.model, *target.dataset, c.files.back(), c.scoring); });
  if (!c.rank_data.empty()) {
    refuse_output_onto_input("-", {c.rank_data});
    if (!c.plot.empty()) refuse_output_onto_input(c.plot, {c.rank_data});
  }
  const auto rank_source = c.rank_data.empty() ? nullptr : std::make_unique<TextSource>(c.rank_data);
  const auto rank_dataset = [&](const LoadedTarget& target) {
    return rank_source == nullptr ? target.dataset : rank_source->labelled_dataset_for(target.model);
  };
  for (size_t i = 0; rank_source != nullptr && i < session.models(); ++i) rank_dataset(session.load(i));
  Table table(Table::format_named(c.format));
  Chart chart{"", "ablated heads, %", c.metric.title(), {}};
  for (size_t i = 0; i < session.models(); ++i) {
    LoadedTarget& target = session.load(i);
    const auto dataset = rank_dataset(target);
    const auto rank_scoring = scoring_for(target.model, c.scoring, *dataset);
    for (const std::string& measure : c.measures) {
      const analysis::AnalysisInput loss_input = target.analysis_input("curve");
      const analysis::AnalysisInput rank_input{
          *target.model.model,           dataset->corpus(), rank_scoring, target.side,
          progress_bar(measure, "rows"), target.kinds};
      Curve curve{str(session.models() > 1 ? target.model.name + ", " : "", measure), {}, {}};
      std::function<double()> metric;
      if (!c.metric.is_perplexity())
        metric = [&] { return c.metric.compute(target.model, *target.dataset, progress_bar(measure, "rows")); };
      analysis::CurveMeter meter(loss_input, metric);
      for (const auto& point : analysis::pruning_curve(loss_input, rank_input, measure, options)) {
        const analysis::CurveLoss loss = meter.loss(point);
        curve.x.push_back(100 * point.fraction);
        curve.y.push_back(loss.value);
        if (c.plot == "-") continue;
        ordered_json row{{"model", target.model.name},
                         {"measure", measure},
                         {"side", c.side},
                         {"order", c.per_layer ? "per-layer" : "global"},
                         {"normalised", c.normalise},
                         {"reranked", c.rerank},
                         {"rank_data", rank_source != nullptr ? rank_source->name() : session.data()},
                         {"fraction", point.fraction}};
        add_loss(row, c.metric, loss);
        row["tokens"] = point.score.tokens;
        table.row(append_protocol(std::move(row), c, target.scoring));
      }
      chart.curves.push_back(std::move(curve));
    }
  }
  if (session.plot() == nullptr) return;
  session.plot()->add(chart);
  session.plot()->draw();
}

}  // namespace

void add_curve(CLI::App& app, Jobs& jobs) {
  CLI::App* sub = app.add_subcommand(
      "curve", "print the loss of a model as its heads are ablated step by step, the least important first");
  auto c = std::make_shared<Curves>();
  add_common_options(*sub, *c);
  add_measure_options(*sub, *c);
  sub->add_option("--step", c->step, "percentage of the heads that each step adds to the ablated heads [10%]")
      ->type_name("P%");
  sub->add_flag("--rerank", c->rerank, "measure importance again after each step, without the ablated heads");
  sub->add_option("--rank-data", c->rank_data, "shard on which importance is measured [the scored shard]")
      ->type_name("SHARD");
  c->metric.add_to(*sub);
  jobs.push_back({sub, [c] {
                    c->fields->store_values(*c);
                    c->metric.store_values();
                    ignore_broken_pipe([&] { draw_curves(*c); });
                  }});
}

}  // namespace mh::prune
