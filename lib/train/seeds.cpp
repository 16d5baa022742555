#include "train/seeds.h"

#include <filesystem>
#include <numeric>

#include "analysis/ablation.h"
#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "train/run_folder.h"

namespace mh::train {

namespace {

task::NamedScores scores_of(const Validation& validation) {
  task::NamedScores scores{{"loss", validation.loss}};
  scores.insert(scores.end(), validation.scores.begin(), validation.scores.end());
  return scores;
}

// Applies `statistic` to the values of each score over all results.
task::NamedScores apply_to_scores(const std::vector<SeedResult>& results,
                                  const std::function<double(const std::vector<double>&)>& statistic) {
  task::NamedScores named_scores;
  for (size_t s = 0; s < results[0].scores.size(); ++s) {
    std::vector<double> values;
    values.reserve(results.size());
    for (const SeedResult& result : results) values.push_back(result.scores[s].second);
    named_scores.emplace_back(results[0].scores[s].first, statistic(values));
  }
  return named_scores;
}

}  // namespace

std::string SeedRuns::folder_of(int64_t seed) const { return str(folder, "/seed", seed); }

void check_seed_folders(const SeedRuns& runs) {
  for (int64_t seed = runs.first_seed; seed < runs.first_seed + runs.num_runs; ++seed) {
    const std::string folder = runs.folder_of(seed);
    refuse_link(folder);
    const bool folder_exists = std::filesystem::exists(folder);
    if (runs.resume && !folder_exists)
      refuse_usage("--resume --seeds", str("the folder of a run with seed ", seed), "no folder " + folder,
                   str("start the missing run with mh-finetune --init FILE --seed ", seed, " --out ", folder,
                       " and the other options of the first runs; then repeat this command"));
    if (!runs.resume && folder_exists)
      refuse_usage("--out", str("no earlier run with seed ", seed), "the folder " + folder,
                   "continue the runs with --resume, or choose another --out or --seed");
  }
}

int run_seeds(const SeedRuns& runs,
              const std::function<std::unique_ptr<Trainer>(int64_t seed, const std::string& folder)>& make_trainer,
              const std::function<void(const SeedResult&)>& on_result) {
  if (!runs.resume) std::filesystem::create_directories(runs.folder);
  for (int64_t i = 0; i < runs.num_runs; ++i) {
    const int64_t seed = runs.first_seed + i;
    const std::string folder = runs.folder_of(seed);
    log_info(str("run ", i + 1, " of ", runs.num_runs, ": seed ", seed, ", folder ", folder));
    std::unique_ptr<Trainer> trainer;
    try {
      trainer = make_trainer(seed, folder);
    } catch (...) {
      std::error_code ignored_error;
      std::filesystem::remove(runs.folder, ignored_error);  // fails, as intended, if the folder is not empty
      throw;
    }
    if (const int status = trainer->run(); status != 0) return status;
    if (!trainer->validates()) continue;
    const task::NamedScores scores = scores_of(trainer->validate_best());
    on_result({seed, trainer->best_update(), scores});
  }
  return 0;
}

task::NamedScores mean_of(const std::vector<SeedResult>& results) {
  return apply_to_scores(results, [](const std::vector<double>& values) {
    return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
  });
}

task::NamedScores standard_deviation_of(const std::vector<SeedResult>& results) {
  return apply_to_scores(results, analysis::sample_deviation);
}

}  // namespace mh::train
