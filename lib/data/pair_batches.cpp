#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "base/random.h"
#include "base/text.h"
#include "ceil_div.h"
#include "data/batches.h"

namespace mh::data {

namespace {

class PairBatches : public Batches {
 public:
  PairBatches(Pairs pairs, const BatchOptions& o, int64_t seed) : pairs_(std::move(pairs)), options_(o), seed_(seed) {
    check_lengths();
    sorted_pairs_.resize(static_cast<size_t>(pairs_.size()));
    sort_pairs(0);
    // Sorting by (target length, source length) gives position i the same lengths in every epoch, so the boundaries of
    // batches are computed once.
    int64_t max_width = 0, first_position = 0;
    for (int64_t i = 0; i < pairs_.size(); ++i) {
      const int64_t width_with_pair = std::max(max_width, max_side_length(sorted_pairs_[static_cast<size_t>(i)]));
      if (i > first_position && width_with_pair * (i - first_position + 1) > o.tokens) {
        batch_ranges_.push_back({first_position, i - first_position});
        first_position = i, max_width = max_side_length(sorted_pairs_[static_cast<size_t>(i)]);
      } else {
        max_width = width_with_pair;
      }
    }
    batch_ranges_.push_back({first_position, pairs_.size() - first_position});
    updates_per_epoch_ = static_cast<int64_t>(batch_ranges_.size());
    tokens_per_update_ = o.tokens;
    shuffle_batches(0);
  }

  std::vector<int64_t> row_costs(int64_t update) override {
    const BatchRowRange batch_range = batch_range_of(update);
    std::vector<int64_t> costs;
    for (int64_t i = 0; i < batch_range.num_rows; ++i) {
      const int64_t pair = pair_at(batch_range, i);
      costs.push_back(pairs_.source_length(pair) + pairs_.target_length(pair));
    }
    return costs;
  }

  std::vector<MicroBatch> micro_batches_of(int64_t update, const BatchRowRange& rows) override {
    const BatchRowRange batch_range = batch_range_of(update);
    if (rows.num_rows == 0) return {};
    if (options_.micro_tokens == 0) return {{rows.first_row, rows.num_rows}};
    int64_t max_width = 1;
    for (int64_t i = 0; i < batch_range.num_rows; ++i)
      max_width = std::max(max_width, max_side_length(pair_at(batch_range, i)));
    std::vector<MicroBatch> micro_batches;
    const int64_t max_rows = std::max<int64_t>(1, options_.micro_tokens / max_width);
    for (int64_t first = 0; first < rows.num_rows; first += max_rows)
      micro_batches.push_back({rows.first_row + first, std::min(max_rows, rows.num_rows - first)});
    return micro_batches;
  }

  Batch load(int64_t update, const MicroBatch& micro_batch) override {
    const BatchRowRange batch_range = batch_range_of(update);
    std::vector<Row> rows;
    for (int64_t i = 0; i < micro_batch.num_rows; ++i)
      rows.push_back(pairs_.row_of(pair_at(batch_range, micro_batch.first_row + i)));
    return load_pairs(pairs_, rows);
  }

  std::string describe_rows(int64_t update) override {
    const BatchRowRange batch_range = batch_range_of(update);
    return str(batch_range.num_rows, " pairs, the first is pair ", pair_at(batch_range, 0) + 1, " of the data");
  }

  int64_t to_updates(const Length& length) const override {
    return count_updates(length, updates_per_epoch_, [&](int64_t num_tokens) {
      // `num_tokens` counts target tokens, and batches differ in their number of target tokens. A remainder of less
      // than an epoch is converted with the mean number of target tokens per batch.
      return epochs_to_updates(num_tokens / pairs_.num_targets(), updates_per_epoch_, length) +
             ceil_div(num_tokens % pairs_.num_targets() * updates_per_epoch_, pairs_.num_targets());
    });
  }

 private:
  void check_lengths() const {
    int64_t num_too_long = 0;
    for (int64_t i = 0; i < pairs_.size(); ++i) num_too_long += max_side_length(i) > options_.sequence_length;
    if (num_too_long > 0)
      refuse_usage(
          "train.batch.sequence_length",
          str("at least ", count_of(pairs_.max_length(), "token"), ", the length of the longest source or target"),
          str(found_value(options_.sequence_length, BatchOptions{}.sequence_length), ", which ", num_too_long, " of ",
              pairs_.size(), " pairs exceed"),
          "raise train.batch.sequence_length and train.batch.tokens, or make the shard with a lower --max-length "
          "of mh-prep translation");
  }
  // Returns the larger of the source length and the target length of a pair, in tokens.
  int64_t max_side_length(int64_t pair) const {
    return std::max(pairs_.source_length(pair), pairs_.target_length(pair));
  }

  void sort_pairs(int64_t epoch) {
    std::iota(sorted_pairs_.begin(), sorted_pairs_.end(), 0);
    RandomSequence random(RandomStream(static_cast<uint64_t>(seed_), "pairs"), static_cast<uint32_t>(epoch));
    random.shuffle(sorted_pairs_);
    const auto lengths = [&](int64_t pair) {
      return std::pair(pairs_.target_length(pair), pairs_.source_length(pair));
    };
    std::stable_sort(sorted_pairs_.begin(), sorted_pairs_.end(),
                     [&](int64_t a, int64_t b) { return lengths(a) < lengths(b); });
  }

  void shuffle_batches(int64_t epoch) {
    batch_order_.resize(batch_ranges_.size());
    std::iota(batch_order_.begin(), batch_order_.end(), 0);
    RandomSequence random(RandomStream(static_cast<uint64_t>(seed_), "batches"), static_cast<uint32_t>(epoch));
    random.shuffle(batch_order_);
  }

  // Returns the range of positions in `sorted_pairs_` that an update takes. If the update belongs to another epoch than
  // `epoch_`, first shuffles pairs and batches for that epoch.
  BatchRowRange batch_range_of(int64_t update) {
    const int64_t epoch = update / updates_per_epoch_;
    if (epoch != epoch_) {
      sort_pairs(epoch);
      shuffle_batches(epoch);
      epoch_ = epoch;
    }
    return batch_ranges_[static_cast<size_t>(batch_order_[static_cast<size_t>(update % updates_per_epoch_)])];
  }
  int64_t pair_at(const BatchRowRange& batch_range, int64_t row) const {
    return sorted_pairs_[static_cast<size_t>(batch_range.first_row + row)];
  }

  const Pairs pairs_;
  const BatchOptions options_;
  const int64_t seed_;
  std::vector<BatchRowRange> batch_ranges_;  // ranges of positions in sorted_pairs_, the same in every epoch
  int64_t epoch_ = 0;                        // epoch of sorted_pairs_ and batch_order_
  std::vector<int64_t> sorted_pairs_;        // pair at each position after sorting by length
  std::vector<int64_t> batch_order_;         // index in batch_ranges_ of each update of the epoch
};

}  // namespace

std::unique_ptr<Batches> make_batches(Pairs pairs, const BatchOptions& options, int64_t seed) {
  return std::make_unique<PairBatches>(std::move(pairs), options, seed);
}

}  // namespace mh::data
