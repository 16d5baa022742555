// mh-swap report MODEL… DATA: prints the head discrepancy of each layer and its change relative to the first model.
#include <algorithm>
#include <limits>

#include "analysis/analysis_input.h"
#include "analysis/discrepancy.h"
#include "base/error.h"
#include "base/json_types.h"
#include "base/table.h"
#include "base/text.h"
#include "common/text_source.h"
#include "nn/ops.h"
#include "swap.h"

namespace mh::swap {

namespace {

using analysis::AttentionKind;
using analysis::Discrepancy;
using analysis::percent_change;
using nlohmann::ordered_json;

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

struct Report {
  std::shared_ptr<Arguments> shared;
  std::vector<std::string> files;  // paths of the models, then of the shard
};

void check_report(const Report& a) {
  auto refuse = [](const std::string& expected, const std::string& found) {
    throw Error(Exit::usage, Problem{"mh-swap report", expected, found, "usage: mh-swap report MODEL... DATA"});
  };
  if (a.files.size() < 2)
    refuse("one or more models, then the data", a.files.empty() ? "none" : str(a.files[0], ", without data"));
  if (std::count(a.files.begin(), a.files.end(), "-") > 1)
    refuse("standard input (-) for at most one file", "- more than once");
  refuse_output_onto_input("-", a.files);
}

// Returns the number of attention layers as text: "3" or, for several kinds of attention, "encoder.self 2, decoder.self
// 3, decoder.cross 3".
std::string layers_of(const io::Checkpoint& checkpoint) {
  const model::ModelOptions options = model::config_of(checkpoint).model;
  const auto kinds = model::backbones().make(options.backbone, "model.backbone")->layers(options);
  std::vector<std::string> texts;
  for (const auto& [kind, layers] : kinds)
    texts.push_back(kinds.size() == 1 ? str(layers) : str(name_of(kind), " ", layers));
  return join(texts, ", ");
}

// Prints two rows for each layer with heads: the discrepancy before and after its combiner, with the change relative to
// `baseline`.
void print_layers(Table& table, const ordered_json& protocol, const std::string& model, const Discrepancy& discrepancy,
                  std::map<AttentionKind, std::vector<Discrepancy::Layer>>& baseline) {
  for (const auto& [kind, layers] : discrepancy.layers())
    for (size_t layer = 0; layer < layers.size(); ++layer)
      for (auto [name, member] : {std::pair{"before", &Discrepancy::Layer::before_combiner},
                                  {"after", &Discrepancy::Layer::after_combiner}}) {
        const auto& current = layers[layer].*member;
        if (current.heads == 0) continue;            // all heads of the layer were pruned
        const auto& first_of_kind = baseline[kind];  // empty if all heads of this kind are pruned in the first model
        const auto reference = layer < first_of_kind.size() ? first_of_kind[layer].*member : Discrepancy::Sums{};
        auto mean = [&](double total) { return current.heads > 1 ? total / current.pairs() : kNone; };
        ordered_json row{{"model", model},
                         {"kind", name_of(kind)},
                         {"layer", layer},
                         {"mixing", name},
                         {"heads", current.heads},
                         {"cosine", current.cosine},
                         {"cosine_mean", mean(current.cosine)},
                         {"cosine_change", percent_change(current.cosine, reference.cosine)},
                         {"euclidean", current.euclidean},
                         {"euclidean_mean", mean(current.euclidean)},
                         {"euclidean_change", percent_change(current.euclidean, reference.euclidean)},
                         {"sequences", discrepancy.sequences()}};
        row.update(protocol);
        table.row(row);
      }
}

void report(const Report& r) {
  check_report(r);
  const Arguments& a = *r.shared;
  std::vector<std::unique_ptr<io::Checkpoint>> checkpoints;
  for (size_t i = 0; i + 1 < r.files.size(); ++i) checkpoints.push_back(std::make_unique<io::Checkpoint>(r.files[i]));
  const TextSource data(r.files.back());
  const std::string first_layers = layers_of(*checkpoints[0]);
  std::vector<data::ScoringOptions> protocols;
  for (const auto& checkpoint : checkpoints) {
    data.require_for(*checkpoint);
    if (const std::string layers = layers_of(*checkpoint); layers != first_layers)
      throw Error(Exit::usage, Problem{checkpoint->name(), str("as many layers as the first model: ", first_layers),
                                       layers, "compare models with equal numbers of layers"});
    const model::LoadedModel m = load_with_options(a, *checkpoint);
    protocols.push_back(scoring_for(m, a.scoring, *data.dataset_for(m)));
  }
  Table table(Table::format_named(a.format));
  std::map<AttentionKind, std::vector<Discrepancy::Layer>> baseline;
  for (size_t i = 0; i < checkpoints.size(); ++i) {
    const model::LoadedModel m = load_with_options(a, *checkpoints[i]);
    const auto dataset = data.dataset_for(m);
    const data::ScoringOptions& scoring = protocols[i];
    Discrepancy discrepancy;
    analysis::observe({*m.model, dataset->corpus(), scoring, analysis::Side::whole, progress_bar("report", "rows")},
                      discrepancy);
    if (baseline.empty()) baseline = discrepancy.layers();
    print_layers(table, settings_of(scoring, a.precision), m.name, discrepancy, baseline);
  }
}

}  // namespace

void add_report(CLI::App& app, const std::shared_ptr<Arguments>& a, const std::vector<CLI::Option*>& excluded,
                Jobs& jobs) {
  const auto r = std::make_shared<Report>();
  r->shared = a;
  CLI::App* sub = app.add_subcommand("report", "print the head discrepancy of each layer of the models");
  const auto fields = std::make_shared<ScoringFields>(*sub);
  fields->declare(a->scoring);
  add_model_options(*sub, *a);
  add_format(*sub, a->format);
  sub->add_option("files", r->files, "checkpoints, then a shard; one of these files may be - for standard input")
      ->type_name("MODEL... DATA");
  for (CLI::Option* option : excluded) sub->excludes(option);
  jobs.push_back({sub, [r, fields] {
                    Arguments& shared = *r->shared;
                    shared.fields->store_values(shared.scoring);
                    fields->store_values(shared.scoring);
                    nn::prepare_cpu(shared.threads);
                    ignore_broken_pipe([&] { report(*r); });
                  }});
}

}  // namespace mh::swap
