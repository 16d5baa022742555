// Datasets of examples: rows for an encoder with a head, scored in batches of similar length.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "data/examples.h"
#include "task/task.h"

namespace mh::task {

// A batch of examples and what the model made of it.
struct ScoredExamples {
  model::LanguageModel& model;
  const std::vector<int64_t>& rows;  // of the dataset, in the batch's order
  const data::Batch& batch;          // targets (B, n) on the CPU
  at::Tensor hidden;                 // (B, T, d)
  at::Tensor next;                   // (B, 2): logits of the next sentence; undefined where the head has none
};

// Collects what the scores of a task are made of, batch after batch.
class ExampleTally {
 public:
  virtual ~ExampleTally() = default;
  virtual void add(const ScoredExamples& batch) = 0;
  // After the last row: fills in the scores and predictions.
  virtual void finish(Evaluation& result) = 0;
};

class ExampleDataset : public Dataset {
 public:
  explicit ExampleDataset(data::Examples examples) : examples_(std::move(examples)) {}
  const data::Examples& corpus() const override { return examples_; }
  // Scores the rows of the first epoch, those of similar length together, in batches of about 4096 tokens.
  Evaluation evaluate(model::LanguageModel& model, const EvaluationOptions& options) const override;

 protected:
  virtual std::unique_ptr<ExampleTally> tally() const = 0;

 private:
  data::Examples examples_;
};

// Rows that are the same in every epoch.
template <class Rows>
class FixedExamples : public data::ExampleSource {
 public:
  explicit FixedExamples(std::shared_ptr<const Rows> rows) : rows_(std::move(rows)) {}
  int64_t rows(int64_t) const override { return rows_->size(); }
  int64_t length(int64_t, int64_t row) const override { return rows_->length(row); }
  text::Example make(int64_t, int64_t row) const override { return rows_->make(row); }

 private:
  std::shared_ptr<const Rows> rows_;
};

// Returns the logits. Throws Error(failed) where one is not finite: the largest of such logits is any.
const at::Tensor& require_finite(const at::Tensor& logits);

// Throws Error(input), about the shard `name`, unless there are labels or answers.
void require_known(bool any, const std::string& name);

}  // namespace mh::task
