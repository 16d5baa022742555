// Lines of log.jsonl about the training loss and its speed. Speed counts wall time, saving and logging included,
// validation excluded.
#pragma once

#include <string>

#include "train/run_folder.h"
#include "train/train_state.h"
#include "train/update_step.h"

namespace mh::train {

class ProgressLog {
 public:
  // `perplexity`: whether lines have the perplexity, the exponential of the loss. All arguments must outlive this.
  ProgressLog(RunFolder& folder, TrainState& state, const Batches& batches, const Optimizer& optimizer, bool perplexity)
      : folder_(folder), state_(state), batches_(batches), optimizer_(optimizer), perplexity_(perplexity) {}

  // Starts the clock.
  void start();
  // Counts an update that took `seconds`. `validation`: the last one in a few words, for the progress bar.
  void add(const UpdateStep::Result& sums, double seconds, const std::string& validation);
  void add_validation(double seconds) { validation_seconds_ += seconds; }
  // Writes the line of the updates since the last one, if there were any.
  void write();
  // The text beside the progress bar.
  const std::string& note() const { return note_; }

 private:
  RunFolder& folder_;
  TrainState& state_;
  const Batches& batches_;
  const Optimizer& optimizer_;
  const bool perplexity_;
  // Since the last line or the start of the program.
  double logged_at_ = 0, validation_seconds_ = 0;
  int64_t timed_tokens_ = 0;
  std::string note_;
};

// Seconds on a clock that only moves forward.
double now();

}  // namespace mh::train
