// Datasets of examples (rows of an encoder model with an output head). Each batch that is scored has rows of similar
// length.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "data/examples.h"
#include "task/task.h"

namespace mh::task {

// A batch of examples and the outputs of the model for the batch.
struct ForwardedExamples {
  model::LanguageModel& model;
  const std::vector<int64_t>& rows;  // index in the dataset of each row of the batch
  const data::Batch& batch;          // inputs and targets, on the CPU
  at::Tensor hidden;                 // (B, T, d), hidden states after the last layer
  at::Tensor next_sentence_logits;   // (B, 2), logits of the next-sentence classes; undefined if the model has none
  const std::string& model_name;     // EvaluationOptions::model_name
};

// A batch of examples without outputs.
struct ExampleBatch {
  std::vector<int64_t> rows;  // index in the dataset of each row of the batch
  data::Batch batch;          // inputs and targets, on the CPU
};

// The interface that accumulates the statistics of a task's scores, batch by batch.
class ExampleTally {
 public:
  virtual ~ExampleTally() = default;
  // Reduces the outputs of a batch to the values that add() needs, and returns them on the CPU. Called by the process
  // that computes the batch.
  virtual at::Tensor reduce(const ForwardedExamples& outputs) const = 0;
  // Adds a batch and its reduced outputs. Called in every process, in the order of the batches.
  virtual void add(const ExampleBatch& batch, const at::Tensor& reduced) = 0;
  // Sets result.scores and result.output_files. Called once, after all rows were added; not called if a stop signal
  // ends the evaluation before the last row.
  virtual void finish(Evaluation& result) = 0;
};

class ExampleDataset : public Dataset {
 public:
  explicit ExampleDataset(data::Examples examples) : examples_(std::move(examples)) {}
  const data::Examples& corpus() const override { return examples_; }
  // Scores the rows of epoch 0 in batches. A batch has rows of similar length and at most 4096 tokens; a longer row is
  // a batch of its own.
  Evaluation evaluate(model::LanguageModel& model, const EvaluationOptions& options) const override;

 protected:
  // Returns a new, empty tally of the scores of the task.
  virtual std::unique_ptr<ExampleTally> make_tally() const = 0;

 private:
  data::Examples examples_;
};

// A source of examples that are the same in every epoch. The type `Records` must have the functions size(), length(row)
// and make(row).
template <class Records>
class FixedExamples : public data::ExampleSource {
 public:
  explicit FixedExamples(std::shared_ptr<const Records> records) : records_(std::move(records)) {}
  int64_t num_rows(int64_t) const override { return records_->size(); }
  int64_t length(int64_t, int64_t row) const override { return records_->length(row); }
  text::Example make(int64_t, int64_t row) const override { return records_->make(row); }

 private:
  std::shared_ptr<const Records> records_;
};

// Returns `logits`. Throws Error(failed), which names the model, if a logit is NaN or infinite, since the prediction is
// then undefined.
const at::Tensor& require_finite(const at::Tensor& logits, const std::string& model_name);

// Throws Error(input) about the shard `name` if `has_targets` is false. `has_targets`: whether any record of the shard
// has a target. `targets`: name of the targets in the error, such as "labels".
void require_any_target(bool has_targets, const std::string& name, const char* targets);

}  // namespace mh::task
