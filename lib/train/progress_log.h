// Writes the lines of log.jsonl about training loss and speed. Speed is measured in wall time, which includes saving
// and logging and excludes validation.
#pragma once

#include <string>

#include "train/run_folder.h"
#include "train/train_state.h"
#include "train/update_step.h"

namespace mh::train {

class ProgressLog {
 public:
  // `logs_perplexity`: whether lines contain the perplexity, exp(nll). All other arguments must outlive this object.
  ProgressLog(RunFolder& folder, TrainState& state, Batches& batches, const Optimizer& optimizer, bool logs_perplexity)
      : folder_(folder), state_(state), batches_(batches), optimizer_(optimizer), logs_perplexity_(logs_perplexity) {}

  // Starts the time interval that the first line reports.
  void start();
  // Adds the loss and the number of targets of an update that took `seconds`. `validation_summary`: short text about
  // the last validation, for the progress bar.
  void add(const UpdateStep::Result& result, double seconds, const std::string& validation_summary);
  // Excludes the duration of a validation from the measured time.
  void add_validation(double seconds) { validation_seconds_ += seconds; }
  // Writes a line about all updates since the previous line; does nothing if there were no updates.
  void write();
  // Returns the text for the end of the progress bar: loss, speed and last validation.
  const std::string& progress_text() const { return progress_text_; }

 private:
  RunFolder& folder_;
  TrainState& state_;
  Batches& batches_;
  const Optimizer& optimizer_;
  const bool logs_perplexity_;
  // Time of the previous line or of start() (clock of monotonic_seconds()), and duration of validations since then;
  // seconds.
  double last_log_time_ = 0, validation_seconds_ = 0;
  int64_t num_targets_since_log_ = 0;  // number of targets trained on since last_log_time_
  std::string progress_text_;
};

// Returns the time of a monotonic clock in seconds.
double monotonic_seconds();

}  // namespace mh::train
