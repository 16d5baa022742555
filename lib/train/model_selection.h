// Model selection by validation scores: saves the best model, retains the checkpoints of the best validations, and
// counts validations without improvement for early stopping.
#pragma once

#include <string>

#include "train/checkpointer.h"
#include "train/run_folder.h"
#include "train/validation.h"

namespace mh::train {

class ModelSelection {
 public:
  // All arguments must outlive this object.
  ModelSelection(const TrainOptions& options, const Validator& validator, RunFolder& folder,
                 const Checkpointer& checkpointer, TrainState& state)
      : options_(options),
        validator_(validator),
        folder_(folder),
        checkpointer_(checkpointer),
        update_(state.update),
        state_(state.selection) {}

  // Logs the validation after the current update, and counts the validations without improvement. Returns whether its
  // score is the best so far, and saves the weights to best.safetensors if so.
  bool record(const Validation& result);
  // Returns whether the validation is among the best N validations, with N = train.checkpoint.retain, and saves the
  // weights to checkpoints/ if so.
  bool retain(const Validation& result);
  // Deletes the files in checkpoints/ that are no longer retained. Must be called after the training state is saved, so
  // that every training state names only files that exist.
  void delete_unretained() const { folder_.remove_checkpoints_except(state_.retained_scores); }
  // Returns whether the last train.validation.patience validations brought no improvement; false if the patience is 0.
  bool should_stop_early() const {
    return options_.validation.patience > 0 && state_.stale_validations >= options_.validation.patience;
  }
  // Resets the count of validations without improvement. Improvements are then measured from the best score.
  void reset_patience();
  // Returns the path of best.safetensors. Throws Error(failed) if no validation had a finite score.
  std::string best_weights_path() const;
  // Returns the score of the last validation as short text for the progress bar; "" until this process has validated.
  const std::string& summary() const { return summary_; }

 private:
  const TrainOptions& options_;
  const Validator& validator_;
  RunFolder& folder_;
  const Checkpointer& checkpointer_;
  const int64_t& update_;
  SelectionState& state_;
  std::string summary_;
};

}  // namespace mh::train
