#include "train/trainer.h"

#include <ATen/Parallel.h>

#include "base/contention.h"
#include "base/error.h"
#include "base/json_types.h"
#include "base/log.h"
#include "base/signals.h"
#include "base/text.h"
#include "base/version.h"
#include "distributed/stop_signal.h"
#include "train/run_batches.h"
#include "train/shared_validation.h"

namespace mh::train {

using nlohmann::ordered_json;

bool Trainer::is_due(const Length& interval) const {
  if (state_.update == end_) return true;
  return interval.count > 0 && state_.update % std::max<int64_t>(1, batches_->to_updates(interval)) == 0;
}

TrainProgress Trainer::progress() const {
  return {state_.update, state_.update / batches_->updates_per_epoch(), schedule_lengths_.total_updates};
}

void Trainer::save_state(const std::string& reason, const char* name) const {
  checkpointer_->save_state(folder_->file(name), reason);
}

Validation Trainer::validate(attention::Observer* observer) {
  const double start_time = monotonic_seconds();
  Validation result = validator_->run(*model_, observer, group_);
  result = validation_of_rank_0(result, group_);
  progress_log_->add_validation(monotonic_seconds() - start_time);
  return result;
}

Validation Trainer::validate_best() {
  const std::string weights_path =
      folder_->file(folder_has("best.safetensors") ? "best.safetensors" : "last.safetensors");
  model::load_parameters(io::Checkpoint(weights_path), model_->parameters());
  return validate(nullptr);
}

bool Trainer::begin_phase() {
  bool is_new_phase = false;
  for (const auto& entry : config_.procedures.entries())
    is_new_phase = entry.plugin->returns_to_best(progress(), should_stop_early()) || is_new_phase;
  if (is_new_phase) return_to_best();
  return is_new_phase;
}

void Trainer::return_to_best() {
  model::load_parameters(io::Checkpoint(selection_->best_weights_path()), model_->parameters());
  optimizer_->reset();
  memories_.clear();
  selection_->reset_patience();
  folder_->log({{"update", state_.update}, {"returned_to", best_update()}});
  log_info(str("update ", with_commas(state_.update), ": training continues from the best weights, saved at update ",
               with_commas(best_update())));
}

// Saves the training state only after the validation, log lines and weights that the state refers to, so the process
// may be killed at any time.
bool Trainer::finish_update() {
  const bool is_validation_due = validates() && is_due(config_.train.validation.every);
  const bool ends_epoch = state_.update % batches_->updates_per_epoch() == 0;
  std::vector<attention::Observer*> active_observers;
  if (ends_epoch)
    for (const auto& entry : config_.procedures.entries())
      if (auto* observer = entry.plugin->observer(progress())) active_observers.push_back(observer);
  analysis::Observers observers(active_observers);
  if (group_.is_single()) stop_signal_ = stop_signal();
  Validation result;
  // The processes share the mini-batches of a validation unless a procedure observes it; then each computes the whole
  // validation. All processes continue with the results of rank 0.
  if (is_validation_due && stop_signal_ == 0) {
    result = validate(active_observers.empty() ? nullptr : &observers);
    stop_signal_ = distributed::agree_on_stop_signal(&group_);
  }
  state_.is_complete = stop_signal_ == 0;
  if (!state_.is_complete) {
    save_state("stopped by a signal");
    return false;
  }
  const bool is_best = is_validation_due && selection_->record(result);
  if (ends_epoch)
    for (const auto& entry : config_.procedures.entries()) {
      entry.plugin->after_epoch(*model_, progress());
      // All processes take the state of rank 0, so that they make the same decisions at the start of the next epoch.
      if (const std::string state = group_.broadcast(entry.plugin->state()); !group_.is_main())
        entry.plugin->set_state(state);
    }
  if (is_due(config_.train.log_every) || should_stop_early()) progress_log_->write();
  save_after_update(is_validation_due ? &result : nullptr, is_best);
  return true;
}

// Calls begin_phase(), then saves the weights and the training state that are due after an update. `result`: result of
// the validation after this update; null without a validation. `is_best`: whether this validation is the best so far.
void Trainer::save_after_update(const Validation* result, bool is_best) {
  const bool is_new_phase = begin_phase();
  const bool is_save_due = is_due(config_.train.checkpoint.every);
  const bool retains_best = config_.train.checkpoint.retain_by == "best";
  const bool is_retained = retains_best && result != nullptr && selection_->retain(*result);
  if (!retains_best && is_save_due && config_.train.checkpoint.retain > 0) {
    checkpointer_->save_weights(folder_->checkpoint_path(state_.update));
    folder_->retain_newest_checkpoints(config_.train.checkpoint.retain);
  }
  // The state is also saved after a return to the best weights: a later validation may overwrite best.safetensors, and
  // a resume must start from the weights that training returned to.
  if (is_save_due || is_best || is_retained || should_stop_early() || is_new_phase)
    save_state(is_save_due              ? "train.checkpoint.every"
               : is_new_phase           ? "new phase"
               : is_best || is_retained ? "best or retained model"
                                        : "early stopping");
  if (is_retained) selection_->delete_unretained();
}

void Trainer::throw_diverged(const UpdateStep::Result& result, size_t pass_index) const {
  // Does not overwrite last.safetensors, since the weights may already be damaged.
  save_state("loss or gradient not finite", "diverged.safetensors");
  throw Error(
      Exit::failed,
      Problem{
          str("update ", state_.update + 1, " (", batches_->describe_rows(state_.update), ")"),
          "a finite loss and gradient",
          str("loss ", shortest_decimal(result.smoothed_loss * result.sum_to_mean_factor()), ", gradient norm ",
              shortest_decimal(result.gradient_norm)),
          str(pass_index == 0 ? "the state before this update"
                              : str("the state after pass ", pass_index, " of this update"),
              " is in diverged.safetensors; continue from last.safetensors with --resume and a lower train.lr, or with "
              "gradient clipping (train.optimizer.clip_norm)")});
}

void Trainer::begin_epoch() {
  for (const auto& entry : config_.procedures.entries())
    if (const std::string change_json = entry.plugin->before_epoch({*model_, *optimizer_}, progress());
        !change_json.empty())
      folder_->log({{"update", state_.update + 1}, {entry.name, ordered_json::parse(change_json)}});
  if (group_.is_single()) return;
  for (const auto& entry : config_.procedures.entries()) {
    const std::vector<std::string> states = group_.gather(entry.plugin->state());
    for (size_t rank = 1; rank < states.size(); ++rank)
      if (states[rank] != states[0])
        throw Error(Exit::failed,
                    Problem{"train.procedures." + entry.name, "equal states of the procedure in all processes",
                            str("different states in rank 0 and rank ", rank),
                            "start all processes on processors of one model"});
  }
}

void Trainer::update() {
  if (state_.update % batches_->updates_per_epoch() == 0) begin_epoch();
  const double start_time = monotonic_seconds(), lr = learning_rate(config_.train, schedule_lengths_, state_.update);
  const double previous_lr = optimizer_->last_lr;
  UpdateStep::Result result;  // result of the last pass
  // Every pass reads the Transformer-XL memory that precedes the update; the memory after the last pass is kept.
  std::vector<model::Memories> memories;
  const std::vector<TrainingPass> passes = pass_planner_->passes(progress());
  for (size_t i = 0; i < passes.size(); ++i) {
    // Every pass reads the learning rate of the previous update, not of the previous pass.
    optimizer_->last_lr = previous_lr;
    result = (*update_step_)(passes[i], progress(), lr, memories = memories_);
    if (!result.is_finite()) throw_diverged(result, i);
    state_.gradient_norm = result.gradient_norm;
  }
  ++state_.update;
  if (!batches_->continues_streams(state_.update)) memories.clear();
  memories_ = std::move(memories);
  stop_signal_ = result.stop_signal;
  progress_log_->add(result, monotonic_seconds() - start_time, selection_->summary());
}

void Trainer::log_shards() const {
  if (config_.train.shard == "none") return;
  if (!optimizer_->is_sharded()) {
    log_info("train.shard=optimizer has no effect in a run of one process");
    return;
  }
  const std::string among_processes = str(" are divided among ", group_.size(), " processes");
  log_info(str("the moments of ", with_commas(optimizer_->shards().num_elements()), " parameters", among_processes));
  if (config_.train.precision != "bf16") return;
  std::vector<std::string> whole_names;
  int64_t num_divided = 0, num_whole = 0;
  for (const nn::Parameter& p : model_->parameters().all()) {
    if (!p.has_whole_master()) {
      num_divided += p.gradient_leaf().numel();
    } else if (p.traits().trainable) {
      num_whole += p.master().numel();
      whole_names.push_back(p.name());
    }
  }
  log_info(str("the fp32 masters of ", with_commas(num_divided), " parameters", among_processes,
               "; each process holds ", with_commas(num_whole), " others, in ", whole_names.size(),
               " tensors, which the forward pass reads"));
  log_detail("whole masters: " + join(whole_names, ", "));
}

void Trainer::log_start() const {
  ordered_json start_record{{"started", str(log_name(), " ", version())},
                            {"update", state_.update},
                            {"threads", at::get_num_threads()},
                            {"parameters", model_->parameters().num_trainable_elements()},
                            {"updates_per_epoch", batches_->updates_per_epoch()},
                            {"configuration", toml_}};
  if (const std::vector<double>& shares = batches_->shard_shares(); !shares.empty()) {
    start_record["shard_shares"] = shares;
    log_info(describe_shards(config_.data, shares));
  }
  if (!group_.is_single()) start_record["processes"] = group_.size();
  if (!warm_start_name_.empty()) start_record["from"] = warm_start_name_;
  folder_->log(start_record);
  if (!warm_start_name_.empty()) log_info("the run starts from the weights of " + warm_start_name_);
  if (const int64_t num_trained_parameters = pass_planner_->num_trained_parameters();
      num_trained_parameters < model_->parameters().num_trainable_elements())
    log_info(str("training ", count_with_commas(num_trained_parameters, "parameter"), "; all others are frozen"));
  if (state_.update == 0 && end_ > 0 && config_.train.lr > 0 && learning_rate(config_.train, schedule_lengths_, 0) == 0)
    log_info(
        "the first update has learning rate 0, the start of the warm-up (train.schedule.warmup_lr), and changes no "
        "weights");
  if (const TrainOptions& t = config_.train; t.batch.long_sequence_length > 0 && config_.max_long_row_predictions())
    log_info(str("from update ", with_commas(batches_->to_updates(t.batch.long_from) + 1), " on, rows have ",
                 count_of(t.batch.long_sequence_length, "token"), ", of which at most ",
                 *config_.max_long_row_predictions(), " are predicted"));
  log_shards();
  if (update_step_->uses_cuda_graph())
    log_info(
        "updates of equal shapes replay a captured CUDA graph; passes in which a training procedure changes the layers "
        "run without a graph");
  for (const auto& entry : config_.procedures.entries())
    if (const nlohmann::ordered_json values = entry.plugin->expected_values(); !values.is_null()) {
      std::vector<std::string> texts;
      for (const auto& [name, value] : values.items()) texts.push_back(str(name, " ", value.dump()));
      log_info(str(entry.name, ": ", join(texts, ", ")));
    }
  if (pass_planner_->skips_passes()) log_info("passes that would train no parameter of train.trainable are skipped");
  log_info(str(count_with_commas(model_->parameters().num_trainable_elements(), "parameter"), ", ",
               count_with_commas(end_, "update"), " of ", count_with_commas(batches_->tokens_per_update(), "token")));
}

int Trainer::run() {
  install_stop_handlers();
  // Early stopping may be due at once: a resume may lower train.validation.patience below the number of validations
  // without improvement.
  if (state_.is_complete && state_.update < end_ && should_stop_early() && begin_phase()) save_state("new phase");
  if (is_finished() && state_.is_complete) {
    log_info(str("the run is finished: ", with_commas(state_.update), " of ", count_with_commas(end_, "update"),
                 state_.update < end_ ? ", stopped early; set train.validation.patience=0 to continue the run"
                                      : "; set a larger train.length to continue the run"));
    return 0;
  }
  log_start();
  // Saves the state before training, so that a full disk is detected at once, and every folder with results contains
  // last.safetensors.
  if (!folder_has("last.safetensors")) save_state("start");
  ProgressLine progress("train", end_, "updates");
  progress.set_num_done_at_start(state_.update);
  progress_log_->start();
  ContentionWatch contention;
  bool is_running = state_.is_complete || finish_update();
  while (is_running && !is_finished()) {
    update();
    contention.check(at::get_num_threads());
    progress.update(state_.update, progress_log_->progress_text());
    is_running = finish_update();
  }
  if (is_running) {
    if (state_.update < end_)
      log_info(
          str("training stops early: no improvement in ", count_of(state_.selection.stale_validations, "validation")));
    return 0;
  }
  log_info(str("the run was stopped by signal ", stop_signal_, " after update ", with_commas(state_.update),
               "; continue with --resume"));
  return 128 + stop_signal_;
}

}  // namespace mh::train
