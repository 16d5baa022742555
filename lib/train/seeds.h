// Trains several runs that differ only in their seed, each in its own folder, and reports the scores of their best
// models.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "task/task.h"
#include "train/folder_lock.h"
#include "train/trainer.h"

namespace mh::train {

struct SeedRuns {
  std::string folder;  // parent folder of the folders of the runs
  int64_t first_seed = 1,
          num_runs = 1;  // the runs have the seeds first_seed, first_seed + 1, …, first_seed + num_runs - 1
  // Whether to resume the runs that have begun, and to begin the others. If false, no folder of a run may exist.
  bool resume = false;
  // Returns the folder of the run with a seed, such as "FOLDER/seed3" for seed 3.
  std::string folder_of(int64_t seed) const;
  // Returns whether run_seeds() resumes the run with a seed: `resume` is true, and the folder of the run has
  // config.toml, which every run writes before its first update.
  bool resumes(int64_t seed) const;
  // Returns the first seed whose run run_seeds() begins; nullopt if it resumes all runs.
  std::optional<int64_t> first_new_seed() const;
};

// The parent folder of the runs, locked against other processes that train several seeds in it.
class SeedFolder {
 public:
  // Creates the folder unless it exists, and locks it. Throws Error(failed) if the folder cannot be created, and the
  // errors of FolderLock.
  explicit SeedFolder(const SeedRuns& runs);
  // Removes the folder if it has no file except the lock, so that an error before the first run leaves no folder.
  ~SeedFolder();
  SeedFolder(const SeedFolder&) = delete;
  SeedFolder& operator=(const SeedFolder&) = delete;

 private:
  std::string path_;
  std::optional<FolderLock> lock_;
};

// Checks the folders of all runs before any training. Throws Error(usage) about --out if the folder of a run exists
// and `runs.resume` is false, and the error of refuse_link() for a folder that is a symbolic link.
void check_seed_folders(const SeedRuns& runs);

// The scores of the best model of one run.
struct SeedResult {
  int64_t seed = 0;
  int64_t update = 0;        // number of updates after which the best model was saved
  task::NamedScores scores;  // validation of the best model: "loss" (Validation::loss), then the scores of the task
};

// Trains the runs one after another. `make_trainer` creates the trainer of a seed for its folder. `on_result` receives
// the result of every run that has a validation set and ends with exit status 0. Stops at the first run with a nonzero
// exit status and returns that status; returns 0 if all runs end with 0. The caller holds the SeedFolder of the runs.
int run_seeds(const SeedRuns& runs,
              const std::function<std::unique_ptr<Trainer>(int64_t seed, const std::string& folder)>& make_trainer,
              const std::function<void(const SeedResult&)>& on_result);

// Returns the mean of each score over `results`, which must not be empty and must all have the same scores.
task::NamedScores mean_of(const std::vector<SeedResult>& results);
// Returns the sample standard deviation of each score over `results`, which must not be empty and must all have the
// same scores; NaN for a single result.
task::NamedScores standard_deviation_of(const std::vector<SeedResult>& results);

}  // namespace mh::train
