// mh-prune scan MODEL… DATA: what a model loses without each of its heads.
#include <cmath>
#include <limits>

#include "analysis/ablation.h"
#include "analysis/importance.h"
#include "base/error.h"
#include "base/table.h"
#include "base/text.h"
#include "prune.h"
#include "prune_ask.h"

namespace mh::prune {

using analysis::Head;
using analysis::HeadSet;
using analysis::Kind;
using nlohmann::ordered_json;

namespace {

struct Scan : Question {
  std::vector<std::string> heads;
  bool layers = false, all_but_one = false, summary = false;
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
  double full = 0;                   // perplexity
  std::vector<double> perplexities;  // without each head
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
      for (double p : line.perplexities) mean += p / static_cast<double>(line.perplexities.size());
      const double deviation = analysis::deviation(line.perplexities);
      const Line& first = models.front();
      const double none = std::numeric_limits<double>::quiet_NaN();
      table.row(with_protocol({{"kind", name_of(kind)},
                               {"layer", layer},
                               {"model", line.model},
                               {"side", s.side},
                               {"mode", name_of(mode)},
                               {"heads", line.perplexities.size()},
                               {"perplexity", line.full},
                               {"difference", mean},
                               {"relative", 100 * mean / line.full},
                               {"deviation", deviation},
                               {"change", line.index == 0 || first.index > 0
                                              ? none
                                              : 100 * (deviation / analysis::deviation(first.perplexities) - 1)},
                               {"tokens", line.tokens}},
                              s, line.how));
    }
}

void scan(Scan& s) {
  if (s.summary && s.layers)
    throw Error(Exit::usage, Problem{"--summary", "heads, whose deviation it tells", "--layers", "leave one out"});
  Asking asking(s, [&](Asked& asked) { chosen(s, asked); });
  Table table(Table::format_named(s.format));
  Lines lines;
  for (size_t i = 0; i < asking.models(); ++i) {
    Asked& asked = asking.ask(i);
    const std::vector<Case> all = cases(s, asked);
    std::vector<HeadSet> without{{}};
    for (const Case& c : all) without.push_back(c.gone);
    const auto scores = analysis::score_without(asked.subject("scan"), without);
    const double full = std::exp(per_token(scores[0]));
    std::map<std::tuple<Kind, int64_t, Mode>, Line> of_model;
    for (size_t k = 0; k < all.size(); ++k)
      of_model
          .try_emplace({all[k].kind, all[k].layer, all[k].mode},
                       Line{i, asked.model.name, full, {}, asked.how, scores[0].tokens})
          .first->second.perplexities.push_back(std::exp(per_token(scores[k + 1])));
    // What the full model and a whole layer have no number of is NaN, so that a column of numbers stays one.
    const double none = std::numeric_limits<double>::quiet_NaN();
    auto number = [&](int64_t x) { return x < 0 ? ordered_json(none) : ordered_json(x); };
    auto row = [&](const std::string& kind, int64_t layer, int64_t head, const char* mode, const task::Score& score,
                   double deviation) {
      const double nll = per_token(score), perplexity = std::exp(nll);
      table.row(with_protocol({{"model", asked.model.name},
                               {"kind", kind},
                               {"layer", number(layer)},
                               {"head", number(head)},
                               {"side", s.side},
                               {"mode", mode},
                               {"nll", nll},
                               {"perplexity", perplexity},
                               {"difference", perplexity - full},
                               {"relative", 100 * (perplexity / full - 1)},
                               {"layer_deviation", deviation},
                               {"tokens", score.tokens}},
                              s, asked.how));
    };
    if (!s.summary) row("-", -1, -1, "full", scores[0], none);
    for (size_t k = 0; !s.summary && k < all.size(); ++k) {
      const Case& c = all[k];
      row(name_of(c.kind), c.layer, c.head, name_of(c.mode), scores[k + 1],
          analysis::deviation(of_model.at({c.kind, c.layer, c.mode}).perplexities));
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
  jobs.push_back({sub, [s] {
                    s->fields->take(*s);
                    quietly([&] { scan(*s); });
                  }});
}

}  // namespace mh::prune
