// Runs mh-finetune for several seeds and prints a table of the scores.
#include "seeds.h"

#include <cmath>

#include "base/error.h"
#include "base/json_types.h"
#include "base/table.h"
#include "train/seeds.h"
#include "train/trainer.h"

namespace mh::train_setup {

namespace {

using nlohmann::ordered_json;

ordered_json row_of(const std::string& seed, const ordered_json& update, const task::NamedScores& scores) {
  ordered_json row{{"seed", seed}, {"update", update}};
  for (const auto& [name, value] : scores) row[name] = value;
  return row;
}

}  // namespace

void run_seeds(const Arguments& a, Tool& tool) {
  if (a.out.empty()) throw Error(Exit::usage, Problem{"--out", "the folder of the runs", "none", ""});
  if (a.from == "-" && a.seeds > 1)
    throw Error(Exit::usage, Problem{"--seeds", "--init with a file, since each run reads the checkpoint",
                                     "standard input", "write the checkpoint to a file first"});
  const train::Seeds seeds{a.out, a.seed >= 0 ? a.seed : 1, a.seeds, a.resume};
  train::check_seeds(seeds);
  const auto prepare_run = [&](int64_t seed, const std::string& folder) {
    Arguments run_arguments = a;
    run_arguments.seed = seed;
    run_arguments.out = folder;
    return prepare(run_arguments);
  };
  Table table(Table::format_named(a.format));
  std::vector<train::SeedResult> results;
  const int status = train::run_seeds(seeds, prepare_run, [&](const train::SeedResult& result) {
    results.push_back(result);
    table.row(row_of(str(result.seed), result.update, result.scores));
  });
  if (status != 0) return tool.set_status(status);
  if (results.empty()) return;
  table.row(row_of("mean", NAN, train::mean_of(results)));
  table.row(row_of("deviation", NAN, train::deviation_of(results)));
}

}  // namespace mh::train_setup
