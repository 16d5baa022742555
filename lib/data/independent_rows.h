// Corpora whose rows are independent of each other: sentence pairs and examples.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "data/corpus.h"

namespace mh::data {

class IndependentRows : public Corpus {
 public:
  virtual int64_t size() const = 0;        // number of rows
  virtual int64_t max_length() const = 0;  // number of tokens in the longest source, target or example
  // Returns the numbers of tokens (target, source) of a row, by which rows are sorted; an example has source length 0.
  virtual std::pair<int64_t, int64_t> lengths(int64_t row) const = 0;
  // Returns a batch of the rows with the indices `indices`, and appends a Row for each of them to `rows`, which must be
  // empty.
  virtual Batch load(const std::vector<int64_t>& indices, std::vector<Row>& rows) const = 0;

  ScoringOptions resolve(const ScoringOptions& options, model::LanguageModel& model) const override;
  // Returns mini-batches that score each row, or each row of the sample, once; the rows of a mini-batch have similar
  // lengths.
  MiniBatches mini_batches(const ScoringOptions& resolved) const override;
};

}  // namespace mh::data
