// The training loop. All results of a run follow from its configuration and the number of the update, so a run that was
// killed and resumed has bit-identical weights to an uninterrupted one with the same number of threads.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "train/model_selection.h"
#include "train/progress_log.h"
#include "train/run_data.h"
#include "train/schedule.h"
#include "train/warm_start.h"

namespace mh::train {

class Trainer {
 public:
  // Checks the data, their tokenizer and the folder before anything is built. `resume`: continue from last.safetensors,
  // or from the start if that file does not exist yet.
  Trainer(RunConfig config, const std::string& folder, bool resume, at::Device device = at::kCPU, WarmStart start = {});
  ~Trainer();

  // Trains to the end, or until a signal asks to stop, after saving. Returns the exit status: 0, or 128 + the signal.
  // Throws Error(failed), after saving, if a loss or gradient is not finite.
  int run();

  bool validates() const { return validator_->exists(); }
  // Validates the best model of the run so far, or the last one without a validation; its weights stay loaded. Requires
  // a validation set.
  Validation validate_best();
  int64_t best_update() const { return state_.selection.best_update; }

 private:
  void build(const std::string& folder, bool resume, const WarmStart& start);
  void open_folder(const std::string& folder, bool resume, const WarmStart& start);
  void announce() const;
  // Runs the passes of one update, each with an optimiser step. Throws if the loss or the gradient is not finite.
  void update();
  void begin_epoch();  // runs the procedures that act before an epoch
  // Saves the state and throws. `pass`: which pass of the update diverged.
  [[noreturn]] void diverge(const UpdateStep::Result& result, size_t pass) const;
  // Does the work after an update: validation, model selection, procedures, log, saving. Returns false if a signal asks
  // to stop, after saving the state.
  bool finish_update();
  void save_after_update(const Validation* result, bool better);
  Validation validate(attention::Observer* observer);
  // Returns to the best weights if a procedure requests it. Returns whether one does.
  bool begin_phase();
  void return_to_best();  // loads best.safetensors; resets the optimiser and the memories
  void save_state(const std::string& reason, const char* name = "last.safetensors") const;
  TrainProgress progress() const;
  bool is_due(const Length& every) const;
  bool stopped_early() const { return selection_->stopped_early(); }
  bool finished() const { return state_.update >= end_ || stopped_early(); }

  RunConfig config_;
  at::Device device_;
  RunData data_;
  std::string toml_;
  std::unique_ptr<Batches> batches_;
  std::unique_ptr<model::LanguageModel> model_;
  int64_t end_ = 0;  // updates in the run
  ScheduleLengths lengths_;
  std::unique_ptr<Optimizer> optimizer_;
  std::unique_ptr<Validator> validator_;
  std::unique_ptr<PassPlanner> pass_planner_;
  std::unique_ptr<UpdateStep> step_;
  // Context before the rows of the next update, by micro-batch; empty at the start of an epoch and for models without
  // memory.
  std::vector<model::Memories> memories_;
  TrainState state_;
  std::unique_ptr<RunFolder> folder_;
  std::unique_ptr<Checkpointer> checkpointer_;
  std::unique_ptr<ModelSelection> selection_;
  std::unique_ptr<ProgressLog> progress_;
  std::string from_;  // name of the checkpoint that a new run starts from
};

}  // namespace mh::train
