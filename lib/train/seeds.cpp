#include "train/seeds.h"

#include <filesystem>
#include <numeric>

#include "analysis/ablation.h"
#include "base/error.h"
#include "base/log.h"
#include "base/system_message.h"
#include "base/text.h"

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

bool SeedRuns::resumes(int64_t seed) const {
  return resume && std::filesystem::exists(folder_of(seed) + "/config.toml");
}

std::optional<int64_t> SeedRuns::first_new_seed() const {
  for (int64_t seed = first_seed; seed < first_seed + num_runs; ++seed)
    if (!resumes(seed)) return seed;
  return std::nullopt;
}

SeedFolder::SeedFolder(const SeedRuns& runs) : path_(runs.folder) {
  std::error_code error;
  std::filesystem::create_directories(path_, error);
  if (error || !std::filesystem::is_directory(path_))
    throw Error(Exit::failed, Problem{path_, "a folder for the runs", error ? system_message(error.value()) : "a file",
                                      "choose another --out"});
  lock_.emplace(path_, runs.resume ? "wait for the other process" : "choose another --out");
}

SeedFolder::~SeedFolder() {
  // After an error of the file system the folder stays; the lock file in it is harmless.
  std::error_code error;
  bool has_only_lock = true;
  for (std::filesystem::directory_iterator entry(path_, error), end; !error && entry != end; entry.increment(error))
    has_only_lock = has_only_lock && entry->path().filename() == "lock";
  has_only_lock = has_only_lock && !error;
  if (has_only_lock) std::filesystem::remove(path_ + "/lock", error);
  lock_.reset();
  if (has_only_lock) std::filesystem::remove(path_, error);
}

void check_seed_folders(const SeedRuns& runs) {
  for (int64_t seed = runs.first_seed; seed < runs.first_seed + runs.num_runs; ++seed) {
    const std::string folder = runs.folder_of(seed);
    refuse_link(folder);
    if (!runs.resume && std::filesystem::exists(folder))
      refuse_usage("--out", str("no earlier run with seed ", seed), "the folder " + folder,
                   "continue the runs with --resume, or choose another --out or --seed");
  }
}

int run_seeds(const SeedRuns& runs,
              const std::function<std::unique_ptr<Trainer>(int64_t seed, const std::string& folder)>& make_trainer,
              const std::function<void(const SeedResult&)>& on_result) {
  for (int64_t i = 0; i < runs.num_runs; ++i) {
    const int64_t seed = runs.first_seed + i;
    const std::string folder = runs.folder_of(seed);
    log_info(str("run ", i + 1, " of ", runs.num_runs, ": seed ", seed, ", folder ", folder));
    const std::unique_ptr<Trainer> trainer = make_trainer(seed, folder);
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
