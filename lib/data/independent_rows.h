// Corpora of independent rows: pairs of sentences, examples.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "data/corpus.h"

namespace mh::data {

class IndependentRows : public Corpus {
 public:
  virtual int64_t size() const = 0;     // rows
  virtual int64_t longest() const = 0;  // tokens of the longest row or side
  // Returns the tokens of a row's target and source; rows are sorted by both.
  virtual std::pair<int64_t, int64_t> lengths(int64_t row) const = 0;
  // Loads the rows with these numbers and appends them to `rows`.
  virtual Batch load(const std::vector<int64_t>& numbers, std::vector<Row>& rows) const = 0;

  ScoringOptions resolve(const ScoringOptions& options, model::LanguageModel& model) const override;
  // Returns mini-batches of rows of similar length.
  MiniBatches mini_batches(const ScoringOptions& resolved) const override;
};

}  // namespace mh::data
