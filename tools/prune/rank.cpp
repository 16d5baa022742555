// mh-prune rank --by MEASURE MODEL… DATA: prints the heads in ascending order of importance.
#include "analysis/curve.h"
#include "base/error.h"
#include "base/table.h"
#include "prune.h"
#include "session.h"

namespace mh::prune {

using analysis::AttentionKind;
using nlohmann::ordered_json;

namespace {

void rank(const MeasureArguments& q) {
  PruneSession asking(q);
  Table table(Table::format_named(q.format));
  for (size_t i = 0; i < asking.models(); ++i) {
    LoadedTarget& asked = asking.load(i);
    for (const std::string& measure : q.measures) {
      auto scores = analysis::importance_of(measure, asked.subject(measure));
      for (auto& [kind, layers] : scores) {
        if (q.normalise) analysis::normalise_by_layer(layers);
        if (asking.plot() != nullptr)
          asking.plot()->add(
              HeatMap{str(asked.model.name, ", ", name_of(kind), ", ", measure), "head", "layer", layers});
      }
      if (q.plot == "-") continue;
      for (const analysis::RankedHead& r : analysis::ranked(scores, q.per_layer))
        table.row(with_protocol({{"model", asked.model.name},
                                 {"kind", name_of(r.kind)},
                                 {"layer", r.head.layer},
                                 {"head", r.head.head},
                                 {"side", q.side},
                                 {"measure", measure},
                                 {"score", r.score},
                                 {"rank", r.rank},
                                 {"order", q.per_layer ? "per-layer" : "global"},
                                 {"normalised", q.normalise}},
                                q, asked.how));
    }
  }
  if (asking.plot() != nullptr) asking.plot()->draw();
}

}  // namespace

void add_rank(CLI::App& app, Jobs& jobs) {
  CLI::App* sub = app.add_subcommand("rank", "print the heads by importance, the least important first");
  auto q = std::make_shared<MeasureArguments>();
  add_common_options(*sub, *q);
  add_measure_options(*sub, *q);
  jobs.push_back({sub, [q] {
                    q->fields->take(*q);
                    quietly([&] { rank(*q); });
                  }});
}

}  // namespace mh::prune
