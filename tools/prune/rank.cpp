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
  PruneSession session(q);
  Table table(Table::format_named(q.format));
  for (size_t i = 0; i < session.models(); ++i) {
    LoadedTarget& target = session.load(i);
    for (const std::string& measure : q.measures) {
      auto scores = analysis::importance_of(measure, target.analysis_input(measure));
      for (auto& [kind, layers] : scores) {
        if (q.normalise) analysis::normalise_by_layer(layers);
        if (session.plot() != nullptr)
          session.plot()->add(
              HeatMap{str(target.model.name, ", ", name_of(kind), ", ", measure), "head", "layer", layers});
      }
      if (q.plot == "-") continue;
      for (const analysis::RankedHead& r : analysis::rank_heads(scores, q.per_layer))
        table.row(append_protocol({{"model", target.model.name},
                                   {"kind", name_of(r.kind)},
                                   {"layer", r.head.layer},
                                   {"head", r.head.head},
                                   {"side", q.side},
                                   {"measure", measure},
                                   {"score", r.score},
                                   {"rank", r.rank},
                                   {"order", q.per_layer ? "per-layer" : "global"},
                                   {"normalised", q.normalise}},
                                  q, target.scoring));
    }
  }
  if (session.plot() != nullptr) session.plot()->draw();
}

}  // namespace

void add_rank(CLI::App& app, Jobs& jobs) {
  CLI::App* sub = app.add_subcommand("rank", "print the heads by importance, the least important first");
  auto q = std::make_shared<MeasureArguments>();
  add_common_options(*sub, *q);
  add_measure_options(*sub, *q);
  jobs.push_back({sub, [q] {
                    q->fields->store_values(*q);
                    ignore_broken_pipe([&] { rank(*q); });
                  }});
}

}  // namespace mh::prune
