#include <algorithm>

#include "base/error.h"
#include "base/text.h"
#include "data/sorted_batches.h"

namespace mh::data {

namespace {

class PairBatches : public Batches {
 public:
  PairBatches(Pairs pairs, const BatchOptions& o, int64_t seed)
      : pairs_(std::move(pairs)),
        sequence_length_(o.sequence_length),
        sorted_batches_(
            pairs_.size(),
            [this](int64_t pair) { return std::pair(pairs_.target_length(pair), pairs_.source_length(pair)); }, o, seed,
            "pairs") {
    check_lengths();
    updates_per_epoch_ = sorted_batches_.updates_per_epoch();
    tokens_per_update_ = o.tokens;
  }

  std::vector<int64_t> row_costs(int64_t update) override {
    std::vector<int64_t> costs;
    for (int64_t i = 0; i < sorted_batches_.num_rows(update); ++i) {
      const int64_t pair = sorted_batches_.row(update, i);
      costs.push_back(pairs_.source_length(pair) + pairs_.target_length(pair));
    }
    return costs;
  }

  std::vector<MicroBatch> micro_batches_of(int64_t update, const BatchRowRange& rows) override {
    return sorted_batches_.micro_batches_of(update, rows);
  }

  Batch load(int64_t update, const MicroBatch& micro_batch) override {
    std::vector<Row> rows;
    for (int64_t i = 0; i < micro_batch.num_rows; ++i)
      rows.push_back(pairs_.row_of(sorted_batches_.row(update, micro_batch.first_row + i)));
    return load_pairs(pairs_, rows);
  }

  std::string describe_rows(int64_t update) override {
    return str(sorted_batches_.num_rows(update), " pairs, the first is pair ", sorted_batches_.row(update, 0) + 1,
               " of the data");
  }

  int64_t to_updates(const Length& length) const override {
    return mean_length_to_updates(length, updates_per_epoch_, pairs_.num_targets());
  }

 private:
  void check_lengths() const {
    int64_t num_too_long = 0;
    for (int64_t i = 0; i < pairs_.size(); ++i) num_too_long += max_side_length(i) > sequence_length_;
    if (num_too_long > 0)
      refuse_usage(
          "train.batch.sequence_length",
          str("at least ", count_of(pairs_.max_length(), "token"), ", the length of the longest source or target"),
          str(found_value(sequence_length_, BatchOptions{}.sequence_length), ", which ", num_too_long, " of ",
              pairs_.size(), " pairs exceed"),
          "raise train.batch.sequence_length and train.batch.tokens, or make the shard with a lower --max-length "
          "of mh-prep translation");
  }
  // Returns the larger of the source length and the target length of a pair, in tokens.
  int64_t max_side_length(int64_t pair) const {
    return std::max(pairs_.source_length(pair), pairs_.target_length(pair));
  }

  const Pairs pairs_;
  const int64_t sequence_length_;
  SortedBatches sorted_batches_;
};

}  // namespace

std::unique_ptr<Batches> make_batches(Pairs pairs, const BatchOptions& options, int64_t seed) {
  return std::make_unique<PairBatches>(std::move(pairs), options, seed);
}

}  // namespace mh::data
