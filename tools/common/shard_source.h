// Opens shards, loads models and resolves scoring options, for all tools that analyse models on a shard.
#pragma once

#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "base/command_line.h"
#include "common/model_options.h"
#include "io/shard.h"
#include "model/load.h"
#include "task/task.h"
#include "text/records/shard_records.h"

namespace mh {

// A shard from a file, which is read in place, or from a pipe ("-" or a named pipe), which is read into memory. The
// constructor opens the shard and checks its header; it throws Error(usage) for a pipe if the task of the records does
// not support pipes.
class ShardSource {
 public:
  explicit ShardSource(const std::string& path);
  ShardSource(const ShardSource&) = delete;  // not copyable, since datasets refer to records_
  ShardSource& operator=(const ShardSource&) = delete;
  const io::ShardHeader& header() const { return records_->header(); }
  const io::ShardCounts& counts() const { return records_->counts(); }
  const std::string& name() const { return name_; }
  const task::Task& task() const { return *task_; }
  bool holds_pairs() const { return header().side_of(0) == io::Side::source; }
  // Returns the dataset of the shard for a model. Throws Error(input) if the model does not read records of the shard's
  // kind, if the vocabulary of the shard differs from the model's, or if the shard has no target.
  std::shared_ptr<const task::Dataset> dataset_for(const model::LoadedModel& model) const;
  // Returns the result of dataset_for(). Throws Error(input) like dataset_for(), and for a shard without labels, on
  // which no loss can be computed.
  std::shared_ptr<const task::Dataset> labelled_dataset_for(const model::LoadedModel& model) const;
  // Throws Error(input) if the model of `checkpoint`, which need not be loaded, does not read records of the
  // shard's kind or has another vocabulary.
  void require_readable_by(const io::Checkpoint& checkpoint) const;

 private:
  void require_readable_by(const model::ModelOptions& model, const text::Tokenizers& tokenizers,
                           const std::string& name) const;
  std::string name_;
  std::unique_ptr<io::ShardFile> file_;
  std::unique_ptr<task::Task> task_;  // the task that reads the records
  std::unique_ptr<text::ShardRecords> records_;
};

// Loads a model with the device, attention path and precision of the arguments. `masters`: Masters::present for a tool
// that reads, changes or writes parameters, Masters::absent for a tool that only runs the model; in fp32, whose forward
// passes read the masters, a model always has them. `assignments`: texts KEY=VALUE that override configuration keys of
// the model, or set options of tasks whose options affect scores. `names_model`: whether the logged attention paths
// name the model, for tools that load several models.
model::LoadedModel load_with_options(const ModelArguments& args, const io::Checkpoint& checkpoint,
                                     model::Masters masters, const std::vector<std::string>& assignments = {},
                                     bool names_model = false);

// Returns the resolved scoring options for a model. For a text, a sequence length of 0 becomes the sequence length of
// the model's training, and TextRows::automatic becomes sentences if the model was trained with train.batch.order =
// sentences and the context is 0, otherwise blocks. Warns about blocks for a
// model that was trained on sentences, and if rows may be longer than in training.
data::ScoringOptions resolved_scoring_options(const model::LoadedModel& model,
                                              const data::ScoringOptions& scoring_options,
                                              const task::Dataset& dataset);

// Throws Error(usage) if --seed is on the command line although nothing is random: the sample is the whole corpus, and
// none of the measures of importance draws random numbers. `fields`: the options of `sample`; `measures`: names, none
// for a tool that measures no importance.
void refuse_unused_seed(const CommandLineFields& fields, const data::SampleOptions& sample,
                        const std::vector<std::string>& measures = {});

// Returns the options that affect results as table columns: block, context, memory, blocks, seed, precision, and begin
// for a text whose vocabulary has a begin token.
nlohmann::ordered_json settings_of(const data::ScoringOptions& scoring_options, const std::string& precision);

// Returns the end of a message about the choice of heads, such as " by taylor in blocks of 32 tokens, all of them; seed
// 1".
std::string measurement_text(const std::string& measure, const data::ScoringOptions& scoring_options);

// Returns a progress callback; its first call creates the progress bar.
std::function<void(int64_t num_completed, int64_t total)> progress_bar(const std::string& label,
                                                                       const std::string& unit);

}  // namespace mh
