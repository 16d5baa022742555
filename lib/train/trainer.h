// The training loop. Each update depends only on the configuration, the update number and the training state. A run
// that was killed and resumed therefore has bit-identical weights to an uninterrupted run with the same number of
// threads.
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
  // Opens the data, builds the model and opens the folder; throws for invalid configurations, data and folders.
  // `resume`: whether to continue from last.safetensors, or from update 0 if a killed run did not write that file.
  // `warm_start`: weights that a new run starts from. `group`: the processes that train the model together. All
  // processes create the same trainer and call the same functions. Each process computes its share of the rows of an
  // update; rank 0 alone writes to the folder.
  Trainer(RunConfig config, const std::string& folder, bool resume, at::Device device = at::kCPU,
          WarmStart warm_start = {}, distributed::Group group = {});
  ~Trainer();

  // Trains to the end of the run, until early stopping or until a stop signal, and saves the training state. Returns
  // the exit status: 0, or 128 + the number of the signal. If a loss or gradient is not finite, saves
  // diverged.safetensors and throws Error(failed).
  int run();

  // Returns whether the run has a validation set.
  bool validates() const { return validator_->has_dataset(); }
  // Loads the weights of best.safetensors, or of last.safetensors if best.safetensors does not exist, and validates
  // the model. Requires a validation set.
  Validation validate_best();
  // Returns the number of completed updates at the best validation; 0 before the first validation.
  int64_t best_update() const { return state_.selection.best_update; }

 private:
  // Throws Error(usage) if the configurations of the processes differ, and for options that several processes do not
  // support.
  void check_processes(bool resume, const WarmStart& warm_start) const;
  void build(const std::string& folder, bool resume, const WarmStart& warm_start);
  void open_folder(const std::string& folder, bool resume, const WarmStart& warm_start);
  // Logs the start of the run: version, number of parameters, length.
  void log_start() const;
  // Logs the moments and masters that train.shard=optimizer divides among the processes.
  void log_shards() const;
  // Runs the passes of one update, each with an optimiser step. Calls throw_diverged() if the loss or the gradient is
  // not finite.
  void update();
  // Calls Procedure::before_epoch() of all procedures and logs the results.
  void begin_epoch();
  // Saves the state to diverged.safetensors and throws Error(failed). `pass_index`: index of the pass whose `result` is
  // not finite.
  [[noreturn]] void throw_diverged(const UpdateStep::Result& result, size_t pass_index) const;
  // Does the work after an update: validation, model selection, procedures, log, saving. After a stop signal, saves the
  // state and returns false.
  bool finish_update();
  void save_after_update(const Validation* result, bool is_best);
  Validation validate(attention::Observer* observer);
  // Begins a new phase of training, from the best weights so far, if Procedure::returns_to_best() of any procedure
  // returns true. Returns whether a phase began.
  bool begin_phase();
  // Loads best.safetensors, resets the optimiser and the count of validations without improvement, and clears the
  // memories.
  void return_to_best();
  void save_state(const std::string& reason, const char* name = "last.safetensors") const;
  TrainProgress progress() const;
  // Returns whether the number of completed updates is a multiple of `interval` (never for 0u) or the end of the run.
  bool is_due(const Length& interval) const;
  bool should_stop_early() const { return selection_->should_stop_early(); }
  bool is_finished() const { return state_.update >= end_ || should_stop_early(); }

  // Returns, in all processes, whether rank 0 finds the file `name` in the folder.
  bool folder_has(const std::string& name) const;

  RunConfig config_;
  at::Device device_;
  const distributed::Group group_;
  int stop_signal_ = 0;  // stop signal of any process after the last update; 0: none
  RunData data_;
  std::string toml_;  // resolved configuration
  std::unique_ptr<Batches> batches_;
  std::unique_ptr<model::LanguageModel> model_;
  int64_t end_ = 0;  // number of updates in the run
  ScheduleLengths schedule_lengths_;
  std::unique_ptr<Optimizer> optimizer_;
  std::unique_ptr<Validator> validator_;
  std::unique_ptr<PassPlanner> pass_planner_;
  std::unique_ptr<UpdateStep> update_step_;
  // Transformer-XL memory of each micro-batch, which precedes the rows of the next update; empty at the start of an
  // epoch and for models without memory.
  std::vector<model::Memories> memories_;
  TrainState state_;
  std::unique_ptr<RunFolder> folder_;
  std::unique_ptr<Checkpointer> checkpointer_;
  std::unique_ptr<ModelSelection> selection_;
  std::unique_ptr<ProgressLog> progress_log_;
  std::string warm_start_name_;  // file name of the checkpoint of a warm start; "" without a warm start
};

}  // namespace mh::train
