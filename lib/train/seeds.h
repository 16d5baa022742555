// Trains several runs that differ only in their seed, each in its own folder, and reports the scores of their best
// models.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "task/task.h"
#include "train/trainer.h"

namespace mh::train {

struct SeedRuns {
  std::string folder;  // parent folder of the folders of the runs
  int64_t first_seed = 1,
          num_runs = 1;  // the runs have the seeds first_seed, first_seed + 1, …, first_seed + num_runs - 1
  bool resume = false;   // whether to resume the runs; their folders must exist if true, must not exist if false
  // Returns the folder of the run with a seed, such as "FOLDER/seed3" for seed 3.
  std::string folder_of(int64_t seed) const;
};

// Checks the folders of all runs before any training. Throws Error(usage) about --out if the folder of a new run
// exists, and about --resume --seeds if the folder of a run to resume does not exist; throws the error of refuse_link()
// for a folder that is a symbolic link.
void check_seed_folders(const SeedRuns& runs);

// The scores of the best model of one run.
struct SeedResult {
  int64_t seed = 0;
  int64_t update = 0;        // number of updates after which the best model was saved
  task::NamedScores scores;  // validation of the best model: "loss" (Validation::loss), then the scores of the task
};

// Trains the runs one after another. `make_trainer` creates the trainer of a seed for its folder. `on_result` receives
// the result of every run that has a validation set and ends with exit status 0. Stops at the first run with a nonzero
// exit status and returns that status; returns 0 if all runs end with 0. If `make_trainer` throws, removes the parent
// folder if it is empty.
int run_seeds(const SeedRuns& runs,
              const std::function<std::unique_ptr<Trainer>(int64_t seed, const std::string& folder)>& make_trainer,
              const std::function<void(const SeedResult&)>& on_result);

// Returns the mean of each score over `results`, which must not be empty and must all have the same scores.
task::NamedScores mean_of(const std::vector<SeedResult>& results);
// Returns the sample standard deviation of each score over `results`, which must not be empty and must all have the
// same scores; NaN for a single result.
task::NamedScores standard_deviation_of(const std::vector<SeedResult>& results);

}  // namespace mh::train
