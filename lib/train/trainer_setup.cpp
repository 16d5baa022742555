// Implements the construction of Trainer: data, model, optimiser, folder and training state.
#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "data/pinned.h"
#include "data/prefetched_batches.h"
#include "data/shared_batches.h"
#include "train/derived_metadata.h"
#include "train/process_checks.h"
#include "train/resume.h"
#include "train/run_batches.h"
#include "train/run_properties.h"
#include "train/trainer.h"

namespace mh::train {

Trainer::Trainer(RunConfig config, const std::string& folder, bool resume, at::Device device, WarmStart warm_start,
                 distributed::Group group)
    : config_(std::move(config)), device_(device), group_(std::move(group)) {
  config_.check();
  data_ = open_data(config_);
  if (warm_start.checkpoint != nullptr)
    text::require_vocabularies(data_.train_shards[0]->header(), config_.data.train_paths[0],
                               text::tokenizers_of(*warm_start.checkpoint), warm_start.checkpoint->name());
  build(folder, resume, warm_start);
  open_folder(folder, resume, warm_start);
  if (config_.regularisers.why_composed() != nullptr)
    log_info("attention: composed, since a regulariser reads attention probabilities");
  else
    for (const std::string& line : model_->describe_paths(true)) log_info("attention: " + line);
}

Trainer::~Trainer() = default;

bool Trainer::folder_has(const std::string& name) const {
  return group_.broadcast(str(folder_->has(name))) == str(true);
}

void Trainer::check_processes(bool resume, const WarmStart& warm_start) const {
  if (group_.is_single()) return;
  // The command line also sets whether the run resumes, and the checkpoint of a warm start; these two values are not in
  // the configuration, but must be equal in all processes as well.
  const std::string from = warm_start.checkpoint == nullptr ? "" : warm_start.checkpoint->name();
  const std::vector<std::string> configurations = group_.gather(
      str(toml_, "\n[start]\nresume = ", resume ? "true" : "false", "\nfrom = ", quoted_toml(from), "\n"));
  for (size_t rank = 1; rank < configurations.size(); ++rank)
    if (const auto differences = config_difference_texts(configurations[0], configurations[rank], {""});
        !differences.empty())
      refuse_usage("configuration", "equal configurations and data in all processes",
                   str("(rank 0 -> rank ", rank, ") ", join(differences, "; ")),
                   "start all processes of the job with the same options and data");
  train::check_processes(config_, group_.size(), device_);
}

// Builds all objects that do not write to the folder. Errors in the configuration or the data thus leave no folder.
void Trainer::build(const std::string& folder, bool resume, const WarmStart& warm_start) {
  batches_ = batches_of(config_, data_.train_shards, data_.tokenizers);
  model_ = model::build_language_model(config_.model, model::vocabulary_sizes_of(data_.tokenizers), device_);
  if (!group_.is_single())
    batches_ = data::share_batches(std::move(batches_), group_.rank(), group_.size(),
                                   has_running_statistics(model_->parameters()));
  toml_ = config_.toml();
  check_processes(resume, warm_start);
  end_ = batches_->to_updates(config_.train.length);
  if (!device_.is_cpu()) batches_ = data::prefetch_batches(std::move(batches_), end_, data::pin_batch);
  schedule_lengths_ =
      schedule_lengths(config_.train, end_, [this](const Length& length) { return batches_->to_updates(length); });
  if (schedule_lengths_.warmup >= end_ && end_ > 0)
    log_warning(str("the run ends after ", count_with_commas(end_, "update"), ", within its warm-up of ",
                    with_commas(schedule_lengths_.warmup), ": the learning rate does not reach train.lr"));
  optimizer_ = std::make_unique<Optimizer>(model_->parameters(), config_.train, config_.groups, group_);
  config_.groups.check(model_->parameters(), config_.train.optimizer.rule);
  config_.regularisers.start(model_->parameters(), config_.model.attention);
  config_.check_model(*model_);
  validator_ = std::make_unique<Validator>(config_, data_.valid_shard.get(), data_.tokenizers);
  // Refuses rows that the model does not support and a score that the shard lacks before training, not at the first
  // validation.
  if (validates()) validator_->check(*model_);
  TrainState state;
  if (const std::string state_path = folder + "/last.safetensors"; resume && MappedFile::is_mappable(state_path))
    state = parse_train_state(io::Checkpoint(state_path).metadata_entry(io::kTrainingKey), state_path);
  for (const auto& entry : config_.procedures.entries()) {
    entry.plugin->set_run_properties(run_properties_of(config_, *batches_, validates(), state));
    entry.plugin->start(*model_);
  }
  pass_planner_ = std::make_unique<PassPlanner>(config_, model_->parameters(), batches_.get());
  pass_planner_->check();
  initialise(*model_, config_.train, warm_start);
  // Must follow initialise(), which compares hidden states in fp32.
  if (config_.train.precision == "bf16") model_->parameters().use_bf16_copies(true);
  optimizer_->divide_masters();
  model_->set_path(attention::parse_attention_path(config_.train.attention_path));
  update_step_ = std::make_unique<UpdateStep>(config_, *model_, *batches_, *optimizer_, *pass_planner_, group_);
}

void Trainer::open_folder(const std::string& folder, bool resume, const WarmStart& warm_start) {
  if (group_.is_main()) folder_ = std::make_unique<RunFolder>(folder, resume);
  group_.barrier();
  if (!group_.is_main()) folder_ = std::make_unique<RunFolder>(folder, resume, false);
  const std::string state_path = folder + "/last.safetensors";
  std::unique_ptr<const io::Checkpoint> state;  // training state to resume; null: none
  if (resume && folder_has("last.safetensors")) state = std::make_unique<io::Checkpoint>(state_path);
  const io::Checkpoint* predecessor = state != nullptr ? state.get() : warm_start.checkpoint;
  checkpointer_ = std::make_unique<Checkpointer>(
      toml_, data_.tokenizers,
      TrainingObjects{*model_, *optimizer_, config_.procedures, memories_, state_, *batches_, group_},
      predecessor == nullptr ? io::Metadata() : inherited_metadata(*predecessor));
  selection_ = std::make_unique<ModelSelection>(config_.train, *validator_, *folder_, *checkpointer_, state_);
  // Examples have no perplexity, since their loss may be a squared error or the sum of two losses.
  const bool logs_perplexity = config_.task().traits().has_perplexity;
  progress_log_ = std::make_unique<ProgressLog>(*folder_, state_, *batches_, *optimizer_, logs_perplexity);
  bool has_changed_keys = false;
  if (state != nullptr) {
    has_changed_keys = require_same_run(config_, state->metadata_entry(io::kConfigKey), state->name());
    checkpointer_->load_state(*state, config_.model.model.width);
    text::require_vocabularies(data_.train_shards[0]->header(), data_.train_shards[0]->name(),
                               text::tokenizers_of(*state), state->name());
    check_restored_state(state_, config_.train, schedule_lengths_, end_);
  } else if (resume) {
    if (group_.broadcast(str(folder_->has_progress())) == str(true))
      refuse_input(state_path, "the training state of the run, since the folder contains saved weights", "no such file",
                   "restore the file, or start a new run with another --out");
    require_same_run(config_, read_text_file(folder_->file("config.toml")), "config.toml");
  }
  checkpointer_->require_equal_states();
  if (warm_start.checkpoint != nullptr) {
    warm_start_name_ = warm_start.checkpoint->name();
    // Must precede config.toml, since a resume without this state would start from random weights. If the process is
    // killed between the two files, a new run replaces the state (RunFolder::has_only_start_state()).
    save_state("start");
  }
  // Writes config.toml and log.jsonl after all checks, so that a resume that fails a check leaves both files unchanged.
  // A finished run has no update to which a changed key could apply, so its config.toml stays as well.
  if (state == nullptr || !state_.is_complete || !is_finished())
    write_file_atomically(folder_->file("config.toml"), toml_);
  else if (has_changed_keys)
    log_warning("the run is finished, so the changed keys have no effect, and config.toml is not rewritten");
  folder_->rewind_log(resume ? state_.update : -1, state_.is_complete);
  // A killed run may have saved a state that no longer retains a checkpoint, and not yet deleted this checkpoint.
  if (config_.train.checkpoint.retain_by == "best" && !state_.selection.retained_scores.empty())
    selection_->delete_unretained();
}

}  // namespace mh::train
