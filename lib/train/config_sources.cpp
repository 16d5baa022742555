#include "train/config_sources.h"

#include <algorithm>

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "base/text.h"
#include "io/shard.h"
#include "model/load.h"
#include "model/partial_load.h"
#include "task/task.h"
#include "train/finetune.h"
#include "train/run_config.h"
#include "train/run_data.h"

namespace mh::train {

namespace {

// Adds to `config` the sections that a fine-tuning run inherits from the checkpoint. If the first training shard is
// known and the task of the model has task::TaskTraits::counts_rows, also adds the configuration keys of a task head
// that fits the labels of the shard.
void inherit_config(const io::Checkpoint& checkpoint, const std::string& first_train_path, Config& config) {
  const std::string inherited_toml = inherited_sections(checkpoint);
  config.load_text(inherited_toml, checkpoint.name() + ": configuration");
  for (const std::string& line : split(inherited_toml, '\n'))
    if (line.rfind('[', 0) == 0) log_info(str("inherited from ", checkpoint.name(), ": ", line));
  if (first_train_path.empty() || !task::task_of(model::config_of(checkpoint).model)->traits().counts_rows) return;
  const std::unique_ptr<io::ShardFile> shard = open_shard(first_train_path, kTrainPathPlace);
  const auto task = task::task_of_kind(shard->header().kind, first_train_path);
  for (const std::string& key : task->head_assignments(shard->header(), first_train_path)) config.set(key);
}

// Sets train.length to one epoch, unless a source sets it.
void set_default_length(Config& config) {
  const auto keys = config.keys_below("train");
  if (std::find(keys.begin(), keys.end(), "length") != keys.end()) return;
  config.set("train.length=1e");
  log_info("train.length is not set; using 1e, one epoch");
}

// Throws Error(usage) if a model with this configuration cannot load the parameters of the checkpoint.
void check_checkpoint(const ConfigSources& sources, Config config) {
  const io::Checkpoint& checkpoint = *sources.checkpoint;
  const auto model = model::ModelConfig::read(config);
  const auto vocabulary_sizes = model::vocabulary_sizes_of(text::tokenizers_of(checkpoint));
  const std::string& where = sources.checkpoint_name;
  if (!sources.is_finetuning)
    return model::require_same_parameters(checkpoint.name(), model::config_of(checkpoint), model, vocabulary_sizes,
                                          where);
  const auto new_model = model::build_language_model(model, vocabulary_sizes, at::Device(at::kMeta));
  model::compare_with_checkpoint(checkpoint, new_model->parameters(), where);
  model::require_same_heads(
      *model::build_language_model(model::config_of(checkpoint), vocabulary_sizes, at::Device(at::kMeta)), *new_model,
      where);
}

}  // namespace

Config combine_config(const ConfigSources& sources) {
  Config config;
  const io::Checkpoint* checkpoint = sources.checkpoint;
  const bool is_finetuning = checkpoint != nullptr && sources.is_finetuning;
  if (checkpoint != nullptr)
    config.load_text(model::config_of(*checkpoint).toml(), checkpoint->name() + ": configuration");
  if (is_finetuning) inherit_config(*checkpoint, sources.first_train_path, config);
  if (!sources.resumed_config_path.empty()) {
    config.load_text(read_text_file(sources.resumed_config_path), sources.resumed_config_path);
    set_legacy_defaults(config);
  }
  for (const std::string& file : sources.config_paths) config.load_file(file);
  for (const OptionValue& value : sources.options) {
    if (value.texts.size() == 1) config.set_text(value.key, value.texts.front(), value.option);
    else config.set_texts(value.key, value.texts, value.option);
  }
  for (const std::string& assignment : sources.assignments) config.set(assignment);
  if (is_finetuning) set_default_length(config);
  if (checkpoint != nullptr) check_checkpoint(sources, config);
  return config;
}

}  // namespace mh::train
