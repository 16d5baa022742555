#include "seeds.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/log.h"
#include "base/table.h"
#include "train/trainer.h"

namespace mh::train_setup {

namespace {

using nlohmann::ordered_json;
using Scores = std::vector<std::pair<std::string, double>>;

Scores scores_of(const train::Validation& v) {
  Scores scores{{"loss", v.loss}};
  scores.insert(scores.end(), v.scores.begin(), v.scores.end());
  return scores;
}

// What all of them have in common, by the first.
ordered_json row_of(const std::string& seed, const ordered_json& update, const Scores& names,
                    const std::function<double(size_t)>& value) {
  ordered_json row{{"seed", seed}, {"update", update}};
  for (size_t i = 0; i < names.size(); ++i) row[names[i].first] = value(i);
  return row;
}

// The run in its folder. One that is refused leaves no empty folder of runs.
std::unique_ptr<train::Trainer> begun(const Arguments& one, const std::string& runs) {
  try {
    return prepare(one);
  } catch (...) {
    std::error_code ignored;
    std::filesystem::remove(runs, ignored);  // not one that holds anything
    throw;
  }
}

}  // namespace

void run_seeds(const Arguments& a, Tool& tool) {
  const int64_t first = a.seed >= 0 ? a.seed : 1;
  if (a.out.empty()) throw Error(Exit::usage, Problem{"--out", "the folder of the runs", "none", ""});
  if (a.from == "-" && a.seeds > 1)
    throw Error(Exit::usage, Problem{"--seeds", "--init of a file, which each run begins with", "standard input", ""});
  for (int64_t seed = first; a.resume && seed < first + a.seeds; ++seed)
    if (const std::string folder = str(a.out, "/seed", seed); !std::filesystem::exists(folder))
      throw Error(Exit::usage, Problem{"--resume --seeds", str("a run with seed ", seed), "none: " + folder,
                                       str("begin it alone, with --init and the rest as before, --seed ", seed,
                                           " and --out ", folder, "; then give this command again")});
  for (int64_t seed = first; !a.resume && seed < first + a.seeds; ++seed)
    if (const std::string folder = str(a.out, "/seed", seed); std::filesystem::exists(folder))
      throw Error(Exit::usage, Problem{"--out", "a folder without runs of these seeds", folder + ", which is there",
                                       "go on with --resume, or choose another folder or --seed"});
  if (!a.resume) std::filesystem::create_directories(a.out);
  std::vector<Scores> found;
  Table table(Table::format_named(a.format));
  for (int64_t i = 0; i < a.seeds; ++i) {
    Arguments one = a;
    one.seed = first + i;
    one.out = str(a.out, "/seed", one.seed);
    log_info(str("seed ", one.seed, ", ", i + 1, " of ", a.seeds, ": ", one.out));
    const auto trainer = begun(one, a.out);
    if (const int status = trainer->run(); status != 0) return tool.set_status(status);
    if (!trainer->validates()) continue;
    const train::Validation best = trainer->validate_best();
    found.push_back(scores_of(best));
    table.row(
        row_of(str(one.seed), trainer->best_update(), found[0], [&](size_t s) { return found.back()[s].second; }));
  }
  if (found.empty()) return;
  const auto n = static_cast<double>(found.size());
  const auto mean = [&](size_t s) {
    double sum = 0;
    for (const Scores& one : found) sum += one[s].second;
    return sum / n;
  };
  const auto deviation = [&](size_t s) {
    double squares = 0;
    for (const Scores& one : found) squares += std::pow(one[s].second - mean(s), 2);
    return std::sqrt(squares / (n - 1));  // nan of one seed
  };
  table.row(row_of("mean", NAN, found[0], mean));
  table.row(row_of("deviation", NAN, found[0], deviation));
}

}  // namespace mh::train_setup
