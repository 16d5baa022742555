// Rows for an encoder with a head (model.bert.head): documents to pre-train on, classified sentences, questions.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include "data/independent_rows.h"
#include "text/records/example.h"

namespace mh::data {

// What the rows are made of. Safe to use from several threads.
class ExampleSource {
 public:
  virtual ~ExampleSource() = default;
  // Rows of an epoch. Those of documents are drawn again in each; of anything else they are the same in all.
  virtual int64_t rows(int64_t epoch) const = 0;
  // Tokens of a row; exactly those that make() gives.
  virtual int64_t length(int64_t epoch, int64_t row) const = 0;
  virtual text::Example make(int64_t epoch, int64_t row) const = 0;
  // Whether minus the length of its row follows the targets of each (model::Targets).
  virtual bool needs_lengths() const { return false; }
  // The weight of a next-sentence class beside a word in an update of these rows.
  virtual double next_weight(std::span<const text::Example> /*update*/) const { return 1; }
};

class Examples : public IndependentRows {
 public:
  // `padding`: the token that rows are filled up with.
  explicit Examples(std::shared_ptr<const ExampleSource> source, int32_t padding = 0)
      : source_(std::move(source)), padding_(padding) {}

  const ExampleSource& source() const { return *source_; }
  int32_t padding() const { return padding_; }
  int64_t size() const override { return source_->rows(0); }  // of the first epoch
  int64_t longest() const override;
  int64_t targets() const override { return size(); }
  std::pair<int64_t, int64_t> lengths(int64_t row) const override { return {source_->length(0, row), 0}; }
  Batch load(const std::vector<int64_t>& numbers, std::vector<Row>& rows) const override;
  std::unique_ptr<Batches> batches(const BatchOptions& options, int64_t seed) const override;

 private:
  std::shared_ptr<const ExampleSource> source_;
  int32_t padding_;
};

// Returns rows as wide as the longest; next_weight is the caller's to set.
Batch load_examples(const Examples& corpus, std::span<const text::Example> examples);

}  // namespace mh::data
