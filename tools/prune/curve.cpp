// mh-prune curve --by MEASURE MODEL… DATA: what a model loses as its heads go, the least important first.
#include "analysis/curve.h"

#include <CLI/CLI.hpp>
#include <cmath>

#include "asking.h"
#include "base/error.h"
#include "base/table.h"
#include "base/text.h"
#include "common/metric.h"
#include "prune.h"

namespace mh::prune {

using nlohmann::ordered_json;

namespace {

struct Curves : Question {
  std::string step = "10%", rank_data;
  bool rerank = false;
  Metric metric;
};

void draw_curves(Curves& c) {
  analysis::CurveOptions options{analysis::parse_fraction(c.step, "--step"), c.per_layer, c.rerank, c.normalise};
  if (options.step < 0.001) throw Error(Exit::usage, Problem{"--step", "at least 0.1%", c.step, ""});
  if (!c.rank_data.empty() && c.rank_data == "-" && std::count(c.files.begin(), c.files.end(), "-") > 0)
    throw Error(Exit::usage, Problem{"--rank-data", "standard input for one file", "- more than once", ""});
  Asking asking(c, [&](Asked& asked) { c.metric.check(asked.model, asked.text, c.files.back(), c.scoring); });
  if (!c.rank_data.empty()) {
    refuse_output_onto_input("-", {c.rank_data});
    if (!c.plot.empty()) refuse_output_onto_input(c.plot, {c.rank_data});
  }
  const auto rank_source = c.rank_data.empty() ? nullptr : std::make_unique<TextSource>(c.rank_data);
  const auto rank_text = [&](const Asked& asked) {
    return rank_source == nullptr ? asked.text : rank_source->measure_for(asked.model);
  };
  for (size_t i = 0; rank_source != nullptr && i < asking.models(); ++i) rank_text(asking.ask(i));
  Table table(Table::format_named(c.format));
  Chart chart{"", "heads gone, %", c.metric.title(), {}};
  for (size_t i = 0; i < asking.models(); ++i) {
    Asked& asked = asking.ask(i);
    const task::Corpus text = rank_text(asked);
    const auto how = scoring_for(asked.model, c.scoring, text);
    for (const std::string& measure : c.measures) {
      const analysis::Subject scored = asked.subject("curve");
      const analysis::Subject measured{*asked.model.model, text, how, asked.side, progress_bar(measure, "rows"),
                                       asked.kinds};
      Curve curve{str(asking.models() > 1 ? asked.model.name + ", " : "", measure), {}, {}};
      double full = 0, full_judged = 0;
      for (const auto& point : analysis::pruning_curve(scored, measured, measure, options)) {
        const double nll = per_token(point.score), perplexity = std::exp(nll);
        if (point.fraction == 0) full = perplexity;
        int64_t gone = 0;
        for (const auto& [kind, heads] : point.gone) gone += static_cast<int64_t>(heads.size());
        curve.x.push_back(100 * point.fraction);
        double judged = perplexity;
        if (!c.metric.is_perplexity()) {
          const analysis::Masked masked(*asked.model.model, asked.side, point.gone);
          judged = c.metric.of(asked.model, asked.text, asking.data(), progress_bar(measure, "rows"));
          if (point.fraction == 0) full_judged = judged;
        }
        curve.y.push_back(judged);
        if (c.plot == "-") continue;
        ordered_json row{{"model", asked.model.name},
                         {"measure", measure},
                         {"side", c.side},
                         {"order", c.per_layer ? "per-layer" : "global"},
                         {"normalised", c.normalise},
                         {"reranked", c.rerank},
                         {"rank_data", rank_source != nullptr ? rank_source->name() : asking.data()},
                         {"fraction", point.fraction},
                         {"heads_gone", gone},
                         {"nll", nll},
                         {"perplexity", perplexity},
                         {"difference", perplexity - full},
                         {"relative", 100 * (perplexity / full - 1)}};
        if (!c.metric.is_perplexity()) {
          row[c.metric.name()] = judged;
          row[c.metric.name() + "_difference"] = judged - full_judged;
          row.update(c.metric.protocol());
        }
        row["tokens"] = point.score.tokens;
        table.row(with_protocol(std::move(row), c, asked.how));
      }
      chart.curves.push_back(std::move(curve));
    }
  }
  if (asking.plot() == nullptr) return;
  asking.plot()->add(chart);
  asking.plot()->draw();
}

}  // namespace

void add_curve(CLI::App& app, Jobs& jobs) {
  CLI::App* sub = app.add_subcommand("curve", "what a model loses as its heads go, the least important first");
  auto c = std::make_shared<Curves>();
  add_question(*sub, *c);
  add_measures(*sub, *c);
  sub->add_option("--step", c->step, "of the heads, that go at once [10%]")->type_name("P%");
  sub->add_flag("--rerank", c->rerank, "measure again after each step, without the heads that are gone");
  sub->add_option("--rank-data", c->rank_data, "measure importance on this shard [that which is scored]")
      ->type_name("SHARD");
  c->metric.add_to(*sub);
  jobs.push_back({sub, [c] {
                    c->fields->take(*c);
                    c->metric.take();
                    quietly([&] { draw_curves(*c); });
                  }});
}

}  // namespace mh::prune
