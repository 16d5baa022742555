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

// A batch of examples and the outputs of the model.
struct ScoredExamples {
  model::LanguageModel& model;
  const std::vector<int64_t>& rows;  // indices of the rows in the dataset, in the batch's order
  const data::Batch& batch;          // targets (B, n) on the CPU
  at::Tensor hidden;                 // (B, T, d)
  at::Tensor next;                   // (B, 2): logits of the next sentence; undefined without such a head
};

// Accumulates the statistics of a task's scores, batch by batch.
class ExampleTally {
 public:
  virtual ~ExampleTally() = default;
  virtual void add(const ScoredExamples& batch) = 0;
  // Fills in the scores and predictions; called after the last row.
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

// Examples whose rows are the same in every epoch.
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

// Returns the logits. Throws Error(failed) if one is not finite, since the largest of such logits is undefined.
const at::Tensor& require_finite(const at::Tensor& logits);

// Throws Error(input) about the shard `name` if no record has a label or an answer.
void require_known(bool any, const std::string& name);

}  // namespace mh::task
