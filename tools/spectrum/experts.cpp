// mh-spectrum experts MODEL DATA: what the experts of a mixture do.
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>

#include "analysis/experts_report.h"
#include "base/error.h"
#include "base/log.h"
#include "base/table.h"
#include "base/text.h"
#include "spectrum.h"

namespace mh::spectrum {

using nlohmann::ordered_json;

void show_experts(const Arguments& a, const task::ScoringOptions& given, const Metric& metric) {
  if (!metric.is_perplexity() && a.show != "scores")
    throw Error(Exit::usage, Problem{"--metric", "--show scores, which it is for", "--show " + a.show, ""});
  if (a.model == "-" && a.data == "-")
    throw Error(Exit::usage, Problem{"mh-spectrum", "standard input for one file", "- twice", ""});
  refuse_output_onto_input("-", {a.model, a.data});
  const io::Checkpoint checkpoint(a.model);
  const TextSource data(a.data);
  data.require_for(checkpoint);
  model::LoadedModel m = load_as(a, checkpoint, a.sets);
  const analysis::Kinds kinds = analysis::kinds_named(a.kinds, m.model->parameters(), "--kind");
  const task::Corpus text = data.text_for(m);
  analysis::require_experts(*m.model, kinds);
  analysis::Subject subject{*m.model, text, scoring_for(m, given, text)};
  subject.kinds = kinds;
  subject.progress = progress_bar(a.show, "rows");
  Table table(Table::format_named(a.format));
  const auto print = [&](ordered_json row) {
    add_settings(row, a, subject.how);
    table.row(row);
  };
  if (a.show == "scores") {
    metric.check(m, text, data.name(), given);
    std::function<double(attention::Observer*)> judged;
    if (!metric.is_perplexity())
      judged = [&](attention::Observer* observer) {
        return metric.of(m, text, data.name(), progress_bar(a.show, "rows"), observer);
      };
    for (const auto& s : analysis::evaluate_experts(subject, a.random, judged)) {
      ordered_json row{{"model", m.name},
                       {"gates", s.gates},
                       {metric.name(), s.score},
                       {"deviation", s.deviation},
                       {"runs", s.runs}};
      row.update(metric.protocol());
      print(std::move(row));
    }
    return;
  }
  const auto report = analysis::report_experts(subject, a.tokens, a.least);
  if (a.show == "tokens") {
    const text::Tokenizer& pieces = report.of_source ? m.tokenizers.of_source() : *m.tokenizers.target;
    for (const auto& t : report.tokens)
      print({{"model", m.name},
             {"side", report.of_source ? "source" : "target"},
             {"expert", t.expert},
             {"token", t.token},
             {"piece", text::escaped(pieces.piece(t.token))},
             {"count", t.count},
             {"pmi", t.pmi}});
    return;
  }
  std::map<analysis::Kind, std::vector<double>> entropies;  // of layers
  for (const auto& layer : report.layers)
    entropies[layer.kind].push_back(layer.entropy / static_cast<double>(layer.units));
  for (const auto& layer : report.layers) {
    const std::vector<double>& of_kind = entropies.at(layer.kind);
    const double mean = std::accumulate(of_kind.begin(), of_kind.end(), 0.0) / static_cast<double>(of_kind.size());
    for (size_t e = 0; e < layer.counts.size(); ++e)
      print({{"model", m.name},
             {"kind", name_of(layer.kind)},
             {"layer", layer.layer},
             {"unit", layer.by_position ? "position" : "row"},
             {"units", layer.units},
             {"entropy", layer.entropy / static_cast<double>(layer.units)},
             {"entropy_of_kind", mean},
             {"expert", e},
             {"percent", 100 * static_cast<double>(layer.counts[e]) / static_cast<double>(layer.units)}});
  }
}

}  // namespace mh::spectrum
