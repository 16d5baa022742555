// Runs that differ by their seed alone, each in a folder of its own, and what their best models reach.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "task/task.h"
#include "train/trainer.h"

namespace mh::train {

struct Seeds {
  std::string folder;  // that holds the folders of the runs
  int64_t first = 1, count = 1;
  bool resume = false;
  std::string folder_of(int64_t seed) const;  // "FOLDER/seed3"
};

// Before any work. Error(usage), about --out or --resume --seeds, where a run to begin has its folder already, or one
// to resume has none.
void check_seeds(const Seeds& seeds);

// The best model of a run.
struct SeedResult {
  int64_t seed = 0;
  int64_t update = 0;        // the update that it was saved after
  task::NamedScores scores;  // "loss" (nats), then those of the task
};

// Trains the runs one after another. `begin`: the trainer of a seed in its folder. `each`: the result of a run that
// validates, as soon as it is known. Returns the exit status: that of the first run that ends with another than 0,
// after which no other begins. A run that is refused leaves no empty folder of runs.
int run_seeds(const Seeds& seeds,
              const std::function<std::unique_ptr<Trainer>(int64_t seed, const std::string& folder)>& begin,
              const std::function<void(const SeedResult&)>& each);

// Over `results`, at least one, each with the same scores: the mean of each score, and the sample standard deviation
// (NaN of one result).
task::NamedScores mean_of(const std::vector<SeedResult>& results);
task::NamedScores deviation_of(const std::vector<SeedResult>& results);

}  // namespace mh::train
