// mh-spectrum experts MODEL DATA: what the experts of a mixture do.
#include <limits>
#include <nlohmann/json.hpp>

#include "analysis/experts_report.h"
#include "base/error.h"
#include "base/log.h"
#include "base/table.h"
#include "base/text.h"
#include "spectrum.h"

namespace mh::spectrum {

using nlohmann::ordered_json;

void show_experts(const Arguments& a, const task::ScoringOptions& given) {
  if (a.model == "-" && a.data == "-")
    throw Error(Exit::usage, Problem{"mh-spectrum", "standard input for one file", "- twice", ""});
  refuse_output_onto_input("-", {a.model, a.data});
  if (a.model != "-") io::Checkpoint header(a.model);
  const TextSource data(a.data);
  const model::LoadedModel m = load_as(a, io::Checkpoint(a.model), a.sets);
  const task::Corpus text = data.text_for(m);
  analysis::require_experts(*m.model);
  analysis::Subject subject{*m.model, text, scoring_for(m, given, text)};
  subject.progress = progress_bar(a.show, "rows");
  Table table(Table::format_named(a.format));
  const auto print = [&](ordered_json row) {
    add_settings(row, a, subject.how);
    table.row(row);
  };
  if (a.show == "scores") {
    for (const auto& s : analysis::evaluate_experts(subject, a.random))
      print({{"model", m.name},
             {"gates", s.gates},
             {"perplexity", s.perplexity},
             {"deviation", s.deviation},
             {"runs", s.runs}});
    return;
  }
  const auto report = analysis::report_experts(subject, a.tokens, a.least);
  if (a.show == "tokens") {
    for (const auto& t : report.tokens)
      print({{"model", m.name},
             {"expert", t.expert},
             {"token", t.token},
             {"piece", io::escaped(m.tokenizers.target->piece(t.token))},
             {"count", t.count},
             {"pmi", t.pmi}});
    return;
  }
  for (const auto& layer : report.layers)
    for (size_t e = 0; e < layer.counts.size(); ++e)
      print({{"model", m.name},
             {"kind", layer.kind},
             {"layer", layer.layer},
             {"unit", layer.by_position ? "position" : "row"},
             {"units", layer.units},
             {"entropy", layer.entropy / static_cast<double>(layer.units)},
             {"expert", e},
             {"percent", 100 * static_cast<double>(layer.counts[e]) / static_cast<double>(layer.units)}});
}

}  // namespace mh::spectrum
