// A corpus of sentence pairs: sources and their translations, the targets.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "data/independent_rows.h"
#include "text/records/sequences.h"

namespace mh::data {

// Source and target end with the end-of-line token of their vocabularies. A pair without a reference translation has an
// empty target, without the end-of-line token.
class Pairs : public IndependentRows {
 public:
  // `sequences`: token sequences in the order source 0, target 0, source 1, target 1, …
  // `source_end_id`, `target_end_id`: end-of-line tokens of the two vocabularies.
  Pairs(text::Sequences sequences, int32_t source_end_id, int32_t target_end_id);

  int64_t size() const override { return static_cast<int64_t>(statistics_->num_targets_before.size()); }
  int64_t max_length() const override { return statistics_->max_length; }
  int64_t num_targets() const override { return statistics_->num_targets; }
  std::pair<int64_t, int64_t> lengths(int64_t pair) const override {
    return {target_length(pair), source_length(pair)};
  }
  Batch load(const std::vector<int64_t>& indices, std::vector<Row>& rows) const override;
  std::unique_ptr<Batches> batches(const BatchOptions& options, int64_t seed) const override;

  int64_t source_length(int64_t pair) const { return sequences_->length(2 * static_cast<size_t>(pair)); }
  int64_t target_length(int64_t pair) const { return sequences_->length(2 * static_cast<size_t>(pair) + 1); }
  std::vector<int32_t> source(int64_t pair) const { return sequences_->sequence(2 * static_cast<size_t>(pair)); }
  std::vector<int32_t> target(int64_t pair) const { return sequences_->sequence(2 * static_cast<size_t>(pair) + 1); }
  int32_t source_end_id() const { return source_end_id_; }
  int32_t target_end_id() const { return target_end_id_; }
  Row row_of(int64_t pair) const;

 private:
  struct Statistics {
    std::vector<int64_t> num_targets_before;  // number of target tokens before each pair's target
    int64_t num_targets = 0;                  // number of tokens in all targets
    int64_t max_length = 0;                   // number of tokens in the longest source or target
  };
  std::shared_ptr<const text::Sequences> sequences_;
  std::shared_ptr<const Statistics> statistics_;
  int32_t source_end_id_, target_end_id_;
};

// Returns a batch of `rows`, with sources padded to the longest source and targets to the longest target.
Batch load_pairs(const Pairs& pairs, const std::vector<Row>& rows);

}  // namespace mh::data
