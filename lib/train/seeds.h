// Runs that differ only in their seed, each in a folder of its own, and the scores of their best models.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "task/task.h"
#include "train/trainer.h"

namespace mh::train {

struct Seeds {
  std::string folder;  // folder that holds the folders of the runs
  int64_t first = 1, count = 1;
  bool resume = false;
  std::string folder_of(int64_t seed) const;  // "FOLDER/seed3"
};

// Checks the folders before any work. Throws Error(usage) about --out or --resume --seeds if a new run's folder exists,
// or the folder of a run to resume does not.
void check_seeds(const Seeds& seeds);

// The best model of a run.
struct SeedResult {
  int64_t seed = 0;
  int64_t update = 0;        // update after which it was saved
  task::NamedScores scores;  // "loss" (nats), then those of the task
};

// Trains the runs one after another. `begin` returns the trainer of a seed in its folder; `each` receives the result of
// each run with a validation set as soon as it ends. Returns the exit status of the first run that does not end with 0,
// after which no other run starts; 0 if all do. A refused run leaves no empty folder.
int run_seeds(const Seeds& seeds,
              const std::function<std::unique_ptr<Trainer>(int64_t seed, const std::string& folder)>& begin,
              const std::function<void(const SeedResult&)>& each);

// Return the mean and the sample standard deviation (NaN for a single result) of each score over `results`, at least
// one, all with the same scores.
task::NamedScores mean_of(const std::vector<SeedResult>& results);
task::NamedScores deviation_of(const std::vector<SeedResult>& results);

}  // namespace mh::train
