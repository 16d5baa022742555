// The resolved configuration of a run.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "model/model_config.h"
#include "task/task_options.h"
#include "train/groups.h"
#include "train/options.h"
#include "train/procedure.h"
#include "train/regulariser.h"

namespace mh::train {

// The data of the run; stored in its configuration so that a resume reads the same data.
struct DataOptions {
  std::string train;
  std::string valid;
  std::string vocabulary;  // fingerprint
  std::string source_vocabulary;
  std::string train_checksum;  // checksum of the tokens
  std::string valid_checksum;
  int64_t train_tokens = 0;
  int64_t valid_tokens = 0;
  void describe(Fields& f) {
    f.field("train", train, "shard to train on").changeable();
    f.field("valid", valid, "shard to validate on; empty: none").changeable();
    f.field("vocabulary", vocabulary, "fingerprint of the shards' vocabulary; filled in at the start");
    f.field("source_vocabulary", source_vocabulary,
            "fingerprint of the source vocabulary of pairs with two vocabularies; filled in at the start");
    f.field("train_checksum", train_checksum, "checksum of the training shard's tokens; filled in at the start");
    f.field("valid_checksum", valid_checksum, "checksum of the validation shard's tokens; filled in at the start")
        .fixed_once_validated();
    f.field("train_tokens", train_tokens, "tokens in the training shard; filled in at the start", at_least(0));
    f.field("valid_tokens", valid_tokens, "tokens in the validation shard; filled in at the start", at_least(0))
        .changeable();
  }
};

// Completes the configuration of a run that an earlier version began: keys that did not exist then get the values that
// match its behaviour if these are not the defaults.
void fill_stored(Config& config);

struct RunConfig {
  model::ModelConfig model;
  TrainOptions train;
  task::TaskOptions tasks;
  Groups groups;
  Regularisers regularisers;
  Procedures procedures;
  DataOptions data;

  // Reads all sections and refuses unknown keys.
  static RunConfig read(Config& config);
  // Parses the text of a configuration; `name` is its name in messages.
  static RunConfig parse(const std::string& toml, const std::string& name);
  // Visits the options of all sections but [attention], whose fields are fixed.
  void describe(Fields& f);
  // Throws Error(usage) for contradictions that are visible before anything is built. check_together() leaves out the
  // checks of length and data, which a dry run may lack.
  void check() const;
  void check_together() const;
  void check_for_task() const;  // part of check(): keys of [train] without a meaning in the model's task
  // Throws Error(usage) for options that the model does not support. The regularisers must have been started for it.
  void check_model(model::LanguageModel& built) const;
  void check_recordable(
      model::LanguageModel& built) const;  // train.cuda_graph: features that a CUDA graph cannot capture
  // Returns the task of the model, with its options.
  const task::Task& task() const { return tasks.of(model.model); }
  // Returns the options by which the task makes rows of a shard, for training (`learn`) or scoring.
  task::DatasetOptions dataset_options(bool learn) const;
  // Returns the maximum number of predicted tokens in a row of train.batch.long_block tokens; none if the task has no
  // bound.
  std::optional<int64_t> long_predictions() const;
  // Return the tokens in a row of validation, and the positions of memory before it. As in the validation of
  // Transformer-XL, queries see equally far back whichever of the two lengths is set.
  int64_t validation_block() const;
  int64_t validation_memory() const;
  std::string toml() const;
};

// Returns all keys with types, defaults and help, including those of every stage, for `--list keys`.
std::vector<FieldLister::Row> all_keys();

}  // namespace mh::train
