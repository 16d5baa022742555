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

void rank(const MeasureArguments& args) {
  PruneSession session(args);
  Table table(Table::format_named(args.format), session.plot() != nullptr);
  for (size_t i = 0; i < session.num_models(); ++i) {
    AnalysedModel& analysed_model = session.load(i);
    for (const std::string& measure : args.measures) {
      auto scores = analysis::importance_of(measure, analysed_model.analysis_input(measure));
      if (analysed_model.unit == analysis::HeadUnit::group)
        scores = analysis::sum_by_group(*analysed_model.model.model, scores);
      for (auto& [kind, layers] : scores) {
        if (args.normalise) analysis::normalise_by_layer(layers);
        if (session.plot() != nullptr)
          session.plot()->add(
              HeatMap{str(analysed_model.model.name, ", ", name_of(kind), ", ", measure), args.unit, "layer", layers});
      }
      analysed_model.model.require_unchanged_file();
      if (args.plot == "-") continue;
      for (const analysis::RankedHead& r : analysis::rank_heads(scores, args.per_layer))
        table.print_row(append_protocol({{"model", analysed_model.model.name},
                                         {"kind", name_of(r.kind)},
                                         {"layer", r.head.layer},
                                         {"head", r.head.head},
                                         {"side", args.side},
                                         {"measure", measure},
                                         {"score", r.score},
                                         {"rank", r.rank},
                                         {"order", args.per_layer ? "per-layer" : "global"},
                                         {"normalised", args.normalise}},
                                        args, analysed_model.scoring_options));
    }
  }
  if (session.plot() != nullptr) session.plot()->draw();
}

}  // namespace

void add_rank_subcommand(CLI::App& app, Jobs& jobs) {
  CLI::App* sub = app.add_subcommand("rank", "print the heads by importance, the least important first");
  auto args = std::make_shared<MeasureArguments>();
  add_common_options(*sub, *args);
  add_measure_options(*sub, *args);
  add_unit_option(*sub, args->unit);
  jobs.push_back({sub, [args] {
                    args->store_values();
                    args->refuse_table_options({args->format_option, args->per_layer_option});
                    ignore_broken_pipe([&] { rank(*args); });
                  }});
}

}  // namespace mh::prune
