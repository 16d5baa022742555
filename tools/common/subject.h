// What the tools share that ask models about a text.
#pragma once

#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "common/model_options.h"
#include "io/shard.h"
#include "model/load.h"
#include "task/task.h"
#include "text/records/shard_records.h"

namespace mh {

// A shard: a file stays where it is; a pipe ("-") is held, where the task reads pipes. Opened and checked by its header
// at once.
class TextSource {
 public:
  explicit TextSource(const std::string& path);
  TextSource(const TextSource&) = delete;  // its datasets read from it
  TextSource& operator=(const TextSource&) = delete;
  const io::ShardHeader& header() const { return records_->header(); }
  const io::ShardCounts& counts() const { return records_->counts(); }
  const std::string& name() const { return name_; }
  const task::Task& task() const { return *task_; }
  bool holds_pairs() const { return header().kind == io::kPairsKind; }
  // Error(input) for a shard of another vocabulary than the model's, or of a kind that it does not read.
  std::shared_ptr<const task::Dataset> dataset_for(const model::LoadedModel& m) const;
  // The same, to measure a loss by. Error(input) also for a shard without labels.
  std::shared_ptr<const task::Dataset> labelled_dataset_for(const model::LoadedModel& m) const;
  // The same refusals, of a model that is not loaded yet.
  void require_for(const io::Checkpoint& checkpoint) const;

 private:
  void require(const model::ModelOptions& model, const text::Tokenizers& tokenizers, const std::string& name) const;
  std::string name_;
  std::unique_ptr<io::ShardFile> file_;
  std::unique_ptr<task::Task> task_;  // of the records' kind
  std::unique_ptr<text::ShardRecords> records_;
};

// The model on the device, path and precision that the arguments ask for; with keys of the model set, and of tasks
// whose options steer scores.
model::LoadedModel load_as(const ModelArguments& a, const io::Checkpoint& checkpoint,
                           const std::vector<std::string>& sets = {});

// How a model scores a text: what was not given is as in its training. Warns of blocks longer than those.
data::ScoringOptions scoring_for(const model::LoadedModel& m, const data::ScoringOptions& given,
                                 const task::Dataset& dataset);

// What of the options changes a figure, as columns: block, context, memory, blocks, seed, precision.
nlohmann::ordered_json settings_of(const data::ScoringOptions& how, const std::string& precision);

// " by taylor in blocks of 32 tokens, all of them; seed 1": what chose heads, for a message.
std::string measured_by(const std::string& measure, const data::ScoringOptions& how);

// Reports to a progress bar that begins with the first report.
std::function<void(int64_t done, int64_t all)> progress_bar(const std::string& label, const std::string& unit);

}  // namespace mh
