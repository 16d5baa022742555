// The resolved configuration of a training run.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "model/model_config.h"
#include "task/task_options.h"
#include "train/options.h"
#include "train/parameter_groups.h"
#include "train/procedure.h"
#include "train/regulariser.h"

namespace mh::train {

// The shards of a run: the section [data]. The configuration stores this section, so that a resume can verify that the
// data are the same. open_data() makes `train_paths` and `valid_path` absolute, removes the weight of a single
// shard from `weights`, and sets the other members.
struct DataOptions {
  std::vector<std::string> train_paths;  // paths of the training shards
  std::vector<double> weights;           // weight of each training shard; empty: weighted by the numbers of targets
  std::string valid_path;                // path of the validation shard; empty: no validation
  std::string vocabulary_fingerprint;    // fingerprint of the target vocabulary
  std::string
      source_vocabulary_fingerprint;  // fingerprint of the source vocabulary; empty: no separate source vocabulary
  std::string train_checksum;         // hash of the tokens of the training shards (checksum_of_shards())
  std::string valid_checksum;         // hash of the tokens of the validation shard; empty: no validation
  int64_t train_tokens = 0;           // number of tokens in all training shards
  int64_t valid_tokens = 0;           // number of tokens in the validation shard; 0: no validation
  void describe(Fields& f) {
    f.text_or_texts("train", train_paths, "path of the training shard, or list of the paths of several shards")
        .changeable();
    f.numbers_if_any(
        "weights", weights,
        "weight of each training shard, if there are several: its fraction of the rows of a text, or of the "
        "updates of sentence pairs and of a model with a task head; the sum may be any number; empty: each "
        "shard is weighted by its number of targets",
        positive());
    f.field("valid", valid_path, "path of the validation shard; empty: no validation").changeable();
    f.field("vocabulary", vocabulary_fingerprint,
            "fingerprint of the vocabulary of the shards; set when training starts");
    f.field("source_vocabulary", source_vocabulary_fingerprint,
            "fingerprint of the source vocabulary, for sentence pairs with two vocabularies; set when training starts");
    f.field("train_checksum", train_checksum,
            "checksum of the tokens in the training shards; set when training starts");
    f.field("valid_checksum", valid_checksum,
            "checksum of the tokens in the validation shard; set when training starts")
        .fixed_with_validation_set();
    f.field("train_tokens", train_tokens, "number of tokens in the training shards; set when training starts",
            at_least(0));
    f.field("valid_tokens", valid_tokens, "number of tokens in the validation shard; set when training starts",
            at_least(0))
        .changeable();
  }
};

// Completes a configuration that an earlier version wrote: sets missing keys to the values that reproduce the behaviour
// of that version, where the current defaults do not.
void set_legacy_defaults(Config& config);

struct RunConfig {
  model::ModelConfig model;
  TrainOptions train;
  task::TaskOptions tasks;
  ParameterGroups groups;
  Regularisers regularisers;
  Procedures procedures;
  DataOptions data;

  // Reads all sections of a configuration. Throws Error(usage) for unknown keys.
  static RunConfig read(Config& config);
  // Parses `toml`, the configuration of the checkpoint `name`. Throws Error(input) if the configuration is invalid.
  static RunConfig parse(const std::string& toml, const std::string& name);
  // Visits the options of all sections except [attention]; a resume may change no option of [attention].
  void describe(Fields& f);
  // Throws Error(usage) for options that contradict each other, for a missing train.length, and for options of
  // validation without a validation shard.
  void check() const;
  // Makes the checks of check() that require neither train.length nor data, for a dry run.
  void check_without_data() const;
  // Throws Error(usage) if data.train and data.weights are both set and differ in length; a part of check().
  void check_shard_weights() const;
  // Throws Error(usage) for keys of [train] that the task of the model does not support; a part of check().
  void check_task_options() const;
  // Throws Error(usage) for options that the model does not support. Regularisers::start() must have been called with
  // the parameters of the model.
  void check_model(model::LanguageModel& language_model) const;
  // Throws Error(usage) about train.cuda_graph if a CUDA graph cannot capture the passes of this model and
  // configuration. Called only if train.cuda_graph is set.
  void check_cuda_graph(model::LanguageModel& language_model) const;
  // Returns the task of the model, with the options of this configuration.
  const task::Task& task() const { return tasks.serving_task(model.model); }
  // Returns the options with which the task opens a shard, for training (`is_training`) or scoring.
  task::DatasetOptions dataset_options(bool is_training) const;
  // Returns the maximum number of predicted tokens in a row of train.batch.long_sequence_length tokens; nullopt if the
  // task has no maximum.
  std::optional<int64_t> max_long_row_predictions() const;
  // Returns the row length of a text in validation, in tokens.
  int64_t validation_sequence_length() const;
  // Returns the length of the Transformer-XL memory in validation, in tokens; 0: no memory. By default, memory and row
  // together are as long as in training, which is the evaluation protocol of Transformer-XL.
  int64_t validation_memory() const;
  // Returns the resolved configuration as TOML.
  std::string toml() const;
};

// Returns all configuration keys, including the keys of every attention stage, with type, default and help text, for
// `--list keys`.
std::vector<FieldDescription> all_keys();

}  // namespace mh::train
