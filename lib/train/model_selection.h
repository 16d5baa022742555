// Judges validations: saves the best model, retains the models of the best validations, and counts validations without
// improvement for early stopping.
#pragma once

#include <string>

#include "train/checkpointer.h"
#include "train/run_folder.h"
#include "train/validation.h"

namespace mh::train {

class ModelSelection {
 public:
  // All arguments must outlive this.
  ModelSelection(const TrainOptions& options, const Validator& validator, RunFolder& folder,
                 const Checkpointer& checkpointer, TrainState& state)
      : options_(options),
        validator_(validator),
        folder_(folder),
        checkpointer_(checkpointer),
        update_(state.update),
        state_(state.selection) {}

  // Logs the validation of this update. Returns whether it is the best so far; its weights are then saved.
  bool record(const Validation& result);
  // Saves the model if it is among the train.checkpoint.retain best validations. Returns whether it is.
  bool retain(const Validation& result);
  // Deletes saved models that are no longer retained. Called once the training state is saved, so that every state
  // names models that exist.
  void delete_others() const { folder_.keep_checkpoints(state_.kept); }
  // Whether train.validation.patience is exhausted.
  bool stopped_early() const {
    return options_.validation.patience > 0 && state_.stale_validations >= options_.validation.patience;
  }
  // Starts counting again from the best validation.
  void restart();
  // Returns the path of the best weights. Throws Error(failed) if no validation was finite.
  std::string best_weights() const;
  // The last validation in a few words, for the progress bar.
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
