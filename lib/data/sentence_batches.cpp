// Batches of the sentences of a text, one sentence a row (BatchOrder::sentences).
#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "base/random.h"
#include "base/text.h"
#include "ceil_div.h"
#include "data/batches.h"

namespace mh::data {

namespace {

class SentenceBatches : public Batches {
 public:
  SentenceBatches(Text text, const BatchOptions& o, int64_t seed)
      : text_(std::move(text)), options_(o), seed_(seed), begins_(sentence_row_begins(text_, o.sequence_length)) {
    sorted_rows_.resize(begins_.size() - 1);
    sort_rows(0);
    // Sorting by length gives position i the same length in every epoch, so the boundaries of batches are computed
    // once. Lengths ascend, so the last row of a batch is the longest.
    int64_t first_position = 0;
    for (int64_t i = 0; i < num_rows(); ++i) {
      if (i > first_position && length_at(i) * (i - first_position + 1) > o.tokens) {
        batch_ranges_.push_back({first_position, i - first_position});
        first_position = i;
      }
    }
    if (num_rows() > 0) batch_ranges_.push_back({first_position, num_rows() - first_position});
    updates_per_epoch_ = static_cast<int64_t>(batch_ranges_.size());
    tokens_per_update_ = o.tokens;
    shuffle_batches(0);
  }

  std::vector<int64_t> row_costs(int64_t update) override {
    const BatchRowRange batch_range = batch_range_of(update);
    return std::vector<int64_t>(static_cast<size_t>(batch_range.num_rows), width_of(batch_range));
  }

  std::vector<MicroBatch> micro_batches_of(int64_t update, const BatchRowRange& rows) override {
    if (rows.num_rows == 0) return {};
    if (options_.micro_tokens == 0) return {{rows.first_row, rows.num_rows}};
    const int64_t max_rows = std::max<int64_t>(1, options_.micro_tokens / width_of(batch_range_of(update)));
    std::vector<MicroBatch> micro_batches;
    for (int64_t first = 0; first < rows.num_rows; first += max_rows)
      micro_batches.push_back({rows.first_row + first, std::min(max_rows, rows.num_rows - first)});
    return micro_batches;
  }

  Batch load(int64_t update, const MicroBatch& micro_batch) override {
    const BatchRowRange batch_range = batch_range_of(update);
    std::vector<Row> rows;
    for (int64_t i = 0; i < micro_batch.num_rows; ++i) {
      const int64_t position = batch_range.first_row + micro_batch.first_row + i;
      rows.push_back({begin_at(position), length_at(position), 0});
    }
    return load_rows(text_, rows, width_of(batch_range));
  }

  std::string describe_rows(int64_t update) override {
    const BatchRowRange batch_range = batch_range_of(update);
    return str(count_of(batch_range.num_rows, "sentence"), ", of which the first starts at token ",
               begin_at(batch_range.first_row));
  }

  int64_t to_updates(const Length& length) const override {
    // Batches differ in their number of targets. A remainder of less than an epoch is converted with the mean number of
    // targets per batch.
    const int64_t num_tokens_in_epoch = std::max<int64_t>(1, text_.num_tokens);
    return count_updates(length, updates_per_epoch_, [&](int64_t num_tokens) {
      return epochs_to_updates(num_tokens / num_tokens_in_epoch, updates_per_epoch_, length) +
             ceil_div(num_tokens % num_tokens_in_epoch * updates_per_epoch_, num_tokens_in_epoch);
    });
  }

 private:
  int64_t num_rows() const { return static_cast<int64_t>(sorted_rows_.size()); }
  int64_t length_of(int64_t row) const {
    return begins_[static_cast<size_t>(row) + 1] - begins_[static_cast<size_t>(row)];
  }
  int64_t begin_at(int64_t position) const {
    return begins_[static_cast<size_t>(sorted_rows_[static_cast<size_t>(position)])];
  }
  int64_t length_at(int64_t position) const { return length_of(sorted_rows_[static_cast<size_t>(position)]); }
  int64_t width_of(const BatchRowRange& batch_range) const {
    return length_at(batch_range.first_row + batch_range.num_rows - 1);
  }

  void sort_rows(int64_t epoch) {
    std::iota(sorted_rows_.begin(), sorted_rows_.end(), 0);
    RandomSequence random(RandomStream(static_cast<uint64_t>(seed_), "sentences"), static_cast<uint32_t>(epoch));
    random.shuffle(sorted_rows_);
    std::stable_sort(sorted_rows_.begin(), sorted_rows_.end(),
                     [&](int64_t a, int64_t b) { return length_of(a) < length_of(b); });
  }

  void shuffle_batches(int64_t epoch) {
    batch_order_.resize(batch_ranges_.size());
    std::iota(batch_order_.begin(), batch_order_.end(), 0);
    RandomSequence random(RandomStream(static_cast<uint64_t>(seed_), "batches"), static_cast<uint32_t>(epoch));
    random.shuffle(batch_order_);
  }

  // Returns the range of positions in `sorted_rows_` that an update takes. If the update belongs to another epoch than
  // `epoch_`, first shuffles rows and batches for that epoch.
  BatchRowRange batch_range_of(int64_t update) {
    const int64_t epoch = update / updates_per_epoch_;
    if (epoch != epoch_) {
      sort_rows(epoch);
      shuffle_batches(epoch);
      epoch_ = epoch;
    }
    return batch_ranges_[static_cast<size_t>(batch_order_[static_cast<size_t>(update % updates_per_epoch_)])];
  }

  const Text text_;
  const BatchOptions options_;
  const int64_t seed_;
  const std::vector<int64_t> begins_;        // first token of each row, then the number of tokens of the text
  std::vector<BatchRowRange> batch_ranges_;  // ranges of positions in sorted_rows_, the same in every epoch
  int64_t epoch_ = 0;                        // epoch of sorted_rows_ and batch_order_
  std::vector<int64_t> sorted_rows_;         // row at each position after sorting by length
  std::vector<int64_t> batch_order_;         // index in batch_ranges_ of each update of the epoch
};

}  // namespace

std::unique_ptr<Batches> make_sentence_batches(Text text, const BatchOptions& options, int64_t seed) {
  return std::make_unique<SentenceBatches>(std::move(text), options, seed);
}

}  // namespace mh::data
