// Examples: rows of an encoder model with a task head (model.bert.head). A row holds text for pre-training, one or
// two sentences to classify or rate, or a question with a paragraph.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include "data/independent_rows.h"
#include "text/records/example.h"

namespace mh::data {

// The interface of a source of examples. Safe to use from several threads.
class ExampleSource {
 public:
  virtual ~ExampleSource() = default;
  // Returns the number of rows in an epoch. Rows for pre-training are sampled from documents in each epoch; all other
  // rows are the same in every epoch.
  virtual int64_t num_rows(int64_t epoch) const = 0;
  // Returns the number of tokens in the row that make(epoch, row) returns.
  virtual int64_t length(int64_t epoch, int64_t row) const = 0;
  virtual text::Example make(int64_t epoch, int64_t row) const = 0;
  // Returns whether load_examples() appends the negated number of tokens of a row to the targets of the row, as the
  // head "span" requires (model::Targets).
  virtual bool needs_lengths() const { return false; }
  // Returns the weight of a next-sentence target, relative to a masked word, in the loss of the training update whose
  // batch has the rows `update_rows` of an epoch, without making these rows.
  virtual double next_sentence_weight(int64_t /*epoch*/, std::span<const int64_t> /*update_rows*/) const { return 1; }
};

class Examples : public IndependentRows {
 public:
  // `padding_id`: the token that fills the rows of a batch up to the length of its longest row.
  explicit Examples(std::shared_ptr<const ExampleSource> source, int32_t padding_id = 0)
      : source_(std::move(source)), padding_id_(padding_id) {}

  const ExampleSource& source() const { return *source_; }
  int32_t padding_id() const { return padding_id_; }
  int64_t size() const override { return source_->num_rows(0); }  // number of rows in epoch 0
  int64_t max_length() const override;
  int64_t num_targets() const override { return size(); }
  std::pair<int64_t, int64_t> lengths(int64_t row) const override { return {source_->length(0, row), 0}; }
  Batch load(const std::vector<int64_t>& indices, std::vector<Row>& rows) const override;
  std::unique_ptr<Batches> batches(const BatchOptions& options, int64_t seed) const override;

 private:
  std::shared_ptr<const ExampleSource> source_;
  int32_t padding_id_;
};

// Returns a batch of examples, padded to the length of the longest example. The caller sets
// Batch::next_sentence_weight.
Batch load_examples(const Examples& corpus, std::span<const text::Example> examples);

}  // namespace mh::data
