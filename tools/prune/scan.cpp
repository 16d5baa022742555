// mh-prune scan MODEL… DATA: what a model loses without each of its heads.
#include <CLI/CLI.hpp>
#include <cmath>
#include <limits>

#include "analysis/ablation.h"
#include "analysis/importance.h"
#include "asking.h"
#include "base/error.h"
#include "base/table.h"
#include "base/text.h"
#include "common/metric.h"
#include "prune.h"

namespace mh::prune {

using analysis::Head;
using analysis::HeadSet;
using analysis::Kind;
using nlohmann::ordered_json;

namespace {

struct Scan : Question {
  std::vector<std::string> heads;
  bool layers = false, all_but_one = false, summary = false;
  Metric metric;
};

// Which heads are gone.
enum class Mode { head, all_but_one, layer };
const char* name_of(Mode mode) {
  return mode == Mode::head ? "head" : mode == Mode::all_but_one ? "all-but-one" : "layer";
}

struct Case {
  Mode mode;
  Kind kind;
  int64_t layer, head;  // head: without it, or only it; -1 for all of the layer
  HeadSet gone;
};

// The heads that --heads names, or all.
HeadSet chosen(const Scan& s, Asked& asked) {
  model::LanguageModel& model = *asked.model.model;
  const HeadSet all = analysis::all_heads(model, asked.side, asked.kinds);
  if (s.heads.empty()) return all;
  std::vector<Kind> kinds;
  for (const auto& [kind, heads] : all) kinds.push_back(kind);
  const HeadSet some = analysis::parse_heads(s.heads, kinds, "--heads");
  analysis::check_heads(model, asked.side, some, "--heads");
  return some;
}

std::vector<Case> cases(const Scan& s, Asked& asked) {
  std::vector<Case> all;
  const HeadSet there = analysis::all_heads(*asked.model.model, asked.side, asked.kinds);
  for (const auto& [kind, heads] : chosen(s, asked)) {
    std::map<int64_t, std::set<Head>> layers;
    for (const Head& head : there.at(kind)) layers[head.layer].insert(head);
    int64_t last = -1;
    for (const Head& head : heads) {
      if (s.layers && head.layer != last)
        all.push_back({Mode::layer, kind, head.layer, -1, {{kind, layers[head.layer]}}});
      last = head.layer;
      all.push_back({Mode::head, kind, head.layer, head.head, {{kind, {head}}}});
      std::set<Head> others = layers[head.layer];
      others.erase(head);
      if (s.all_but_one) all.push_back({Mode::all_but_one, kind, head.layer, head.head, {{kind, others}}});
    }
  }
  return all;
}

// A layer of one model, for the summary.
struct Line {
  size_t index;  // of the model
  std::string model;
  double full = 0;              // by the metric
  std::vector<double> without;  // each head
  task::ScoringOptions how;
  int64_t tokens = 0;
};
using Lines = std::map<std::tuple<Kind, int64_t, Mode>, std::vector<Line>>;

// Layer by layer, the models below each other; each is compared with the first, where that has the layer.
void print_summary(const Scan& s, Table& table, const Lines& lines) {
  for (const auto& [place, models] : lines)
    for (const Line& line : models) {
      const auto& [kind, layer, mode] = place;
      double mean = -line.full;
      for (double value : line.without) mean += value / static_cast<double>(line.without.size());
      const double deviation = analysis::deviation(line.without);
      const Line& first = models.front();
      const double none = std::numeric_limits<double>::quiet_NaN();
      ordered_json row{
          {"kind", name_of(kind)},
          {"layer", layer},
          {"model", line.model},
          {"side", s.side},
          {"mode", name_of(mode)},
          {"heads", line.without.size()},
          {s.metric.name(), line.full},
          {"difference", mean},
          {"relative", 100 * mean / line.full},
          {"deviation", deviation},
          {"change",
           line.index == 0 || first.index > 0 ? none : 100 * (deviation / analysis::deviation(first.without) - 1)}};
      if (s.metric.is_perplexity()) row["tokens"] = line.tokens;
      row.update(s.metric.protocol());
      table.row(with_protocol(std::move(row), s, line.how));
    }
}

// By any other metric than perplexity: the model without each of these sets.
std::vector<double> judged_without(const Scan& s, Asked& asked, const std::string& data,
                                   const std::vector<HeadSet>& without) {
  const auto report = progress_bar("scan", "rows");
  const auto models = static_cast<int64_t>(without.size());
  std::vector<double> values;
  for (int64_t k = 0; k < models; ++k) {
    const analysis::Masked masked(*asked.model.model, asked.side, without[static_cast<size_t>(k)]);
    values.push_back(s.metric.of(asked.model, asked.text, data,
                                 [&](int64_t done, int64_t all) { report(k * all + done, models * all); }));
  }
  return values;
}

void scan(Scan& s) {
  if (s.summary && s.layers)
    throw Error(Exit::usage, Problem{"--summary", "heads, whose deviation it tells", "--layers", "leave one out"});
  Asking asking(s, [&](Asked& asked) {
    chosen(s, asked);
    s.metric.check(asked.model, asked.text, s.files.back(), s.scoring);
  });
  Table table(Table::format_named(s.format));
  Lines lines;
  for (size_t i = 0; i < asking.models(); ++i) {
    Asked& asked = asking.ask(i);
    const std::vector<Case> all = cases(s, asked);
    std::vector<HeadSet> without{{}};
    for (const Case& c : all) without.push_back(c.gone);
    std::vector<task::Score> scores(without.size());
    std::vector<double> values;
    if (s.metric.is_perplexity()) {
      scores = analysis::score_without(asked.subject("scan"), without);
      for (const task::Score& score : scores) values.push_back(std::exp(per_token(score)));
    } else {
      values = judged_without(s, asked, asking.data(), without);
    }
    const double full = values[0];
    std::map<std::tuple<Kind, int64_t, Mode>, Line> of_model;
    for (size_t k = 0; k < all.size(); ++k)
      of_model
          .try_emplace({all[k].kind, all[k].layer, all[k].mode},
                       Line{i, asked.model.name, full, {}, asked.how, scores[0].tokens})
          .first->second.without.push_back(values[k + 1]);
    // What the full model and a whole layer have no number of is NaN, so that a column of numbers stays one.
    const double none = std::numeric_limits<double>::quiet_NaN();
    auto number = [&](int64_t x) { return x < 0 ? ordered_json(none) : ordered_json(x); };
    auto print = [&](const std::string& kind, int64_t layer, int64_t head, const char* mode, size_t which,
                     double deviation) {
      ordered_json row{{"model", asked.model.name}, {"kind", kind},   {"layer", number(layer)},
                       {"head", number(head)},      {"side", s.side}, {"mode", mode}};
      if (s.metric.is_perplexity()) row["nll"] = per_token(scores[which]);
      row.update({{s.metric.name(), values[which]},
                  {"difference", values[which] - full},
                  {"relative", 100 * (values[which] / full - 1)},
                  {"layer_deviation", deviation}});
      if (s.metric.is_perplexity()) row["tokens"] = scores[which].tokens;
      row.update(s.metric.protocol());
      table.row(with_protocol(std::move(row), s, asked.how));
    };
    if (!s.summary) print("", -1, -1, "full", 0, none);
    for (size_t k = 0; !s.summary && k < all.size(); ++k) {
      const Case& c = all[k];
      print(name_of(c.kind), c.layer, c.head, name_of(c.mode), k + 1,
            analysis::deviation(of_model.at({c.kind, c.layer, c.mode}).without));
    }
    for (auto& [place, line] : of_model) lines[place].push_back(std::move(line));
  }
  if (s.summary) print_summary(s, table, lines);
}

}  // namespace

void add_scan(CLI::App& app, Jobs& jobs) {
  CLI::App* sub = app.add_subcommand("scan", "what a model loses without each of its heads");
  auto s = std::make_shared<Scan>();
  add_question(*sub, *s);
  sub->add_option("--heads", s->heads, "these heads only, from 0: 0:1,0:3,5:7, or decoder.self:0:1 [all]")
      ->type_name("LAYER:HEAD,...")
      ->delimiter(',')
      ->allow_extra_args(false);
  sub->add_flag("--layers", s->layers, "whole layers too");
  sub->add_flag("--all-but-one", s->all_but_one, "each head alone in its layer too");
  sub->add_flag("--summary", s->summary, "a line for each layer: the deviation over its heads; models side by side");
  s->metric.add_to(*sub);
  jobs.push_back({sub, [s] {
                    s->fields->take(*s);
                    s->metric.take();
                    quietly([&] { scan(*s); });
                  }});
}

}  // namespace mh::prune
