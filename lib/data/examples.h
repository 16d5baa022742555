// Rows for an encoder with a head (model.bert.head): documents for pre-training, classified sentences, questions.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include "data/independent_rows.h"
#include "text/records/example.h"

namespace mh::data {

// The source of rows. Safe to use from several threads.
class ExampleSource {
 public:
  virtual ~ExampleSource() = default;
  // Returns the number of rows of an epoch. Rows of documents are sampled in each epoch; other rows are the same in
  // all.
  virtual int64_t rows(int64_t epoch) const = 0;
  // Returns the number of tokens of the row that make() returns.
  virtual int64_t length(int64_t epoch, int64_t row) const = 0;
  virtual text::Example make(int64_t epoch, int64_t row) const = 0;
  // Returns whether minus the length of its row follows the targets of each row (model::Targets).
  virtual bool needs_lengths() const { return false; }
  // Returns the weight of a next-sentence class relative to a word in an update of these rows.
  virtual double next_weight(std::span<const text::Example> /*update*/) const { return 1; }
};

class Examples : public IndependentRows {
 public:
  // `padding`: padding token of rows.
  explicit Examples(std::shared_ptr<const ExampleSource> source, int32_t padding = 0)
      : source_(std::move(source)), padding_(padding) {}

  const ExampleSource& source() const { return *source_; }
  int32_t padding() const { return padding_; }
  int64_t size() const override { return source_->rows(0); }  // rows of the first epoch
  int64_t longest() const override;
  int64_t targets() const override { return size(); }
  std::pair<int64_t, int64_t> lengths(int64_t row) const override { return {source_->length(0, row), 0}; }
  Batch load(const std::vector<int64_t>& numbers, std::vector<Row>& rows) const override;
  std::unique_ptr<Batches> batches(const BatchOptions& options, int64_t seed) const override;

 private:
  std::shared_ptr<const ExampleSource> source_;
  int32_t padding_;
};

// Returns rows padded to the longest; the caller sets next_weight.
Batch load_examples(const Examples& corpus, std::span<const text::Example> examples);

}  // namespace mh::data
