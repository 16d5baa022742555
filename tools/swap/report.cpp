// mh-swap report MODEL… DATA: how much the heads of each layer differ, and the change against the first model.
#include <c10/core/GradMode.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

#include "analysis/discrepancy.h"
#include "base/error.h"
#include "base/table.h"
#include "base/text.h"
#include "common/subject.h"
#include "swap.h"

namespace mh::swap {

namespace {

using analysis::Discrepancy;
using analysis::Kind;

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

double change(double now, double before) { return before != 0 ? 100 * (now - before) / before : kNone; }

void check_report(const Arguments& a) {
  auto refuse = [](const std::string& expected, const std::string& found) {
    throw Error(Exit::usage, Problem{"mh-swap report", expected, found, "mh-swap report MODEL... DATA"});
  };
  if (a.files.size() < 2)
    refuse("one or more models, then the data", a.files.empty() ? "none" : str(a.files[0], " alone"));
  if (std::count(a.files.begin(), a.files.end(), "-") > 1) refuse("standard input for one file", "- more than once");
  refuse_output_onto_input("-", a.files);
}

// "3", or of several kinds "encoder.self 2, decoder.self 3, decoder.cross 3".
std::string layers_of(const io::Checkpoint& checkpoint) {
  const model::ModelOptions options = model::config_of(checkpoint).model;
  const auto kinds = model::backbones().make(options.backbone, "model.backbone")->layers(options);
  std::vector<std::string> parts;
  for (const auto& [kind, layers] : kinds)
    parts.push_back(kinds.size() == 1 ? str(layers) : str(name_of(kind), " ", layers));
  return join(parts, ", ");
}

}  // namespace

void report(const Arguments& a, const task::ScoringOptions& given) {
  check_report(a);
  std::vector<std::unique_ptr<io::Checkpoint>> checkpoints;
  for (size_t i = 0; i + 1 < a.files.size(); ++i) checkpoints.push_back(std::make_unique<io::Checkpoint>(a.files[i]));
  const TextSource data(a.files.back());
  const std::string first = layers_of(*checkpoints[0]);
  std::vector<task::ScoringOptions> protocols;
  for (const auto& checkpoint : checkpoints) {
    data.require_for(*checkpoint);
    if (const std::string layers = layers_of(*checkpoint); layers != first)
      throw Error(Exit::usage, Problem{checkpoint->name(), str("as many layers as the first model, ", first), layers,
                                       "compare models layer by layer"});
    const model::LoadedModel m = load_as(a, *checkpoint);
    protocols.push_back(scoring_for(m, given, data.text_for(m)));
  }
  Table table(Table::format_named(a.format));
  std::map<Kind, std::vector<Discrepancy::Layer>> baseline;
  for (size_t i = 0; i < checkpoints.size(); ++i) {
    const model::LoadedModel m = load_as(a, *checkpoints[i]);
    const task::Corpus text = data.text_for(m);
    const task::ScoringOptions& how = protocols[i];
    Discrepancy seen;
    task::Walk walk;
    walk.observer = &seen;
    walk.visit = [](const task::Pass&) {};
    walk.progress = progress_bar("report", "rows");
    {
      c10::NoGradGuard no_gradient;
      task::walk(*m.model, text, how, walk);
    }
    walk.progress = {};
    const auto layers = seen.layers();
    if (baseline.empty()) baseline = layers;
    for (const auto& [kind, of_kind] : layers)
      for (size_t layer = 0; layer < of_kind.size(); ++layer)
        for (auto [name, part] :
             {std::pair{"before", &Discrepancy::Layer::before}, {"after", &Discrepancy::Layer::after}}) {
          const auto& now = of_kind[layer].*part;
          if (now.heads == 0) continue;                // a layer that has lost all its heads
          const auto& first_of_kind = baseline[kind];  // none where the first model has lost all of its heads
          const auto then = layer < first_of_kind.size() ? first_of_kind[layer].*part : Discrepancy::Sums{};
          auto mean = [&](double total) { return now.heads > 1 ? total / now.pairs() : kNone; };
          nlohmann::ordered_json row{{"model", m.name},
                                     {"kind", name_of(kind)},
                                     {"layer", layer},
                                     {"mixing", name},
                                     {"heads", now.heads},
                                     {"cosine", now.cosine},
                                     {"cosine_mean", mean(now.cosine)},
                                     {"cosine_change", change(now.cosine, then.cosine)},
                                     {"euclidean", now.euclidean},
                                     {"euclidean_mean", mean(now.euclidean)},
                                     {"euclidean_change", change(now.euclidean, then.euclidean)},
                                     {"sequences", seen.sequences()}};
          row.update(settings_of(how, a.precision));
          table.row(row);
        }
  }
}

}  // namespace mh::swap
