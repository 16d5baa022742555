// Everything a run is made of, as one resolved configuration.
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

// What the run reads; written into its configuration so that a resume finds the same data.
struct DataOptions {
  std::string train;
  std::string valid;
  std::string vocabulary;  // fingerprint
  std::string source_vocabulary;
  std::string train_checksum;  // of the tokens
  std::string valid_checksum;
  int64_t train_tokens = 0;
  int64_t valid_tokens = 0;
  void describe(Fields& f) {
    f.field("train", train, "shard to train on").changeable();
    f.field("valid", valid, "shard to validate on; empty: none").changeable();
    f.field("vocabulary", vocabulary, "fingerprint of the shards' vocabulary; filled in at the start");
    f.field("source_vocabulary", source_vocabulary,
            "the same of the source, where pairs have two vocabularies; filled in at the start");
    f.field("train_checksum", train_checksum, "of the training shard's tokens; filled in at the start");
    f.field("valid_checksum", valid_checksum, "of the validation shard's tokens; filled in at the start")
        .fixed_once_validated();
    f.field("train_tokens", train_tokens, "filled in at the start", at_least(0));
    f.field("valid_tokens", valid_tokens, "filled in at the start", at_least(0)).changeable();
  }
};

// Completes the configuration of a run that an earlier version began: keys that came later get the values that act as
// the run has been trained, where those are not the defaults.
void complete_stored(Config& config);

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
  // The same of a configuration's text; `name` is its name in messages.
  static RunConfig parse(const std::string& toml, const std::string& name);
  // Visits the options of all sections but [attention], whose fields are fixed.
  void describe(Fields& f);
  // Refuses what can be seen to make no sense before anything is built. Error(usage). The second leaves out what a run
  // lacks: its length and data.
  void check() const;
  void check_together() const;
  void check_for_task() const;  // of these: keys of [train] that have no meaning in the model's task
  // The same of what the model, for which the regularisers have been started, cannot do.
  void check_model(model::LanguageModel& built) const;
  void check_recordable(model::LanguageModel& built) const;  // train.cuda_graph: what one graph of kernels can do
  // The task of the model, with its options.
  const task::Task& task() const { return tasks.of(model.model); }
  // How the task makes rows of a shard, to train on or to score.
  task::DatasetOptions dataset_options(bool learn) const;
  // Maximum number of predicted tokens in a row of train.batch.long_block tokens; none where the task has no bound.
  std::optional<int64_t> long_predictions() const;
  // Tokens in a row of validation, and positions of memory behind it: as Transformer-XL is validated, a query of either
  // length sees as far back.
  int64_t validation_block() const;
  int64_t validation_memory() const;
  std::string toml() const;
};

// All keys with types, defaults and help, those of every stage included; for `--list keys`.
std::vector<FieldLister::Row> all_keys();

}  // namespace mh::train
