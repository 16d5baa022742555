#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "base/random.h"
#include "ceil_div.h"
#include "data/batches.h"

namespace mh::data {

namespace {

using text::Example;

// Batches of examples, shuffled in each epoch by (seed, epoch). Every epoch has as many rows as the first: surplus rows
// of a longer epoch are left out, and a shorter epoch repeats rows. Within an update, rows are sorted by length to
// reduce padding, which changes the update only by rounding and by the random numbers of dropout. With
// options.bucket_updates > 1, the rows of an update have similar lengths. Only load() makes rows, and only the rows of
// its micro-batch; row costs and micro-batches follow from the lengths of the rows. A process thus masks the words of
// its own rows only.
class ExampleBatches : public Batches {
 public:
  ExampleBatches(Examples examples, const BatchOptions& o, int64_t seed)
      : examples_(std::move(examples)), options_(o), seed_(seed) {
    num_rows_in_epoch_ = examples_.size();
    if (num_rows_in_epoch_ == 0)
      refuse_input("the training data", "at least one row to train on", "no rows",
                   "use a training shard with more records");
    num_rows_in_update_ = o.rows > 0 ? o.rows : std::max<int64_t>(1, o.tokens / o.sequence_length);
    updates_per_epoch_ = ceil_div(num_rows_in_epoch_, num_rows_in_update_);
    tokens_per_update_ = num_rows_in_update_ * o.sequence_length;
  }

  std::vector<int64_t> row_costs(int64_t update) override {
    select_rows(update);
    return row_lengths_;
  }

  // Splits the sorted rows `rows` of an update into consecutive micro-batches of minimal total cost, by dynamic
  // programming. The cost of a micro-batch is kMicroBatchCost plus its tokens, padding included. If
  // options_.micro_tokens is above 0, a micro-batch of more tokens has a single row.
  std::vector<MicroBatch> micro_batches_of(int64_t update, const BatchRowRange& rows) override {
    select_rows(update);
    const int64_t end_row = rows.first_row + rows.num_rows;
    // Indexed by row r. `min_cost`: minimal cost of the rows [r, end_row); `micro_batch_end`: end of the first
    // micro-batch in the split of these rows that has this cost.
    std::vector<int64_t> min_cost(static_cast<size_t>(end_row) + 1, 0), micro_batch_end(static_cast<size_t>(end_row));
    for (int64_t first_row = end_row - 1; first_row >= rows.first_row; --first_row) {
      const auto row_index = static_cast<size_t>(first_row);
      for (int64_t end = first_row + 1; end <= end_row; ++end) {
        const int64_t num_tokens = row_length(first_row) * (end - first_row);
        if (options_.micro_tokens > 0 && num_tokens > options_.micro_tokens && end > first_row + 1) break;
        const int64_t total_cost = kMicroBatchCost + num_tokens + min_cost[static_cast<size_t>(end)];
        if (end == first_row + 1 || total_cost < min_cost[row_index])
          min_cost[row_index] = total_cost, micro_batch_end[row_index] = end;
      }
    }
    std::vector<MicroBatch> micro_batches;
    for (int64_t first_row = rows.first_row; first_row < end_row;
         first_row = micro_batch_end[static_cast<size_t>(first_row)])
      micro_batches.push_back({first_row, micro_batch_end[static_cast<size_t>(first_row)] - first_row});
    return micro_batches;
  }

  Batch load(int64_t update, const MicroBatch& micro_batch) override {
    select_rows(update);
    std::vector<Example> rows;
    for (int64_t row = micro_batch.first_row; row < micro_batch.first_row + micro_batch.num_rows; ++row)
      rows.push_back(examples_.source().make(epoch_, update_rows_[static_cast<size_t>(row)]));
    Batch batch = load_examples(examples_, rows);
    batch.next_sentence_weight = next_sentence_weight_;
    return batch;
  }

  std::string describe_rows(int64_t update) override {
    select_rows(update);
    return str(update_rows_.size(), " rows, the longest is row ", update_rows_[0], " of the epoch");
  }

  int64_t to_updates(const Length& length) const override {
    return example_length_to_updates(length, updates_per_epoch_);
  }

 private:
  int64_t row_length(int64_t row) const { return row_lengths_[static_cast<size_t>(row)]; }

  void shuffle_rows(int64_t epoch) {
    const int64_t num_rows = examples_.source().num_rows(epoch);
    shuffled_rows_.resize(static_cast<size_t>(num_rows));
    std::iota(shuffled_rows_.begin(), shuffled_rows_.end(), 0);
    RandomSequence random(RandomStream(static_cast<uint64_t>(seed_), "examples"), static_cast<uint32_t>(epoch));
    random.shuffle(shuffled_rows_);
    for (int64_t i = num_rows; i < num_rows_in_epoch_; ++i)
      shuffled_rows_.push_back(shuffled_rows_[static_cast<size_t>(i % num_rows)]);
    shuffled_rows_.resize(static_cast<size_t>(num_rows_in_epoch_));
    if (options_.bucket_updates > 1) bucket_by_length(epoch, random);
  }

  // Sorts the rows of every options_.bucket_updates consecutive updates by length, divides the sorted rows among these
  // updates (the longest rows form one update, the next longest another, and so on), and shuffles the updates.
  // Remaining rows, too few for an update, form the last update of the epoch.
  void bucket_by_length(int64_t epoch, RandomSequence& random) {
    std::vector<int64_t> bucketed_rows;
    for (int64_t first_row = 0; first_row < num_rows_in_epoch_;
         first_row += options_.bucket_updates * num_rows_in_update_) {
      const auto begin = shuffled_rows_.begin() + first_row,
                 end = shuffled_rows_.begin() +
                       std::min(num_rows_in_epoch_, first_row + options_.bucket_updates * num_rows_in_update_);
      sort_longest_first(epoch, begin, end);
      std::vector<int64_t> update_order(static_cast<size_t>((end - begin) / num_rows_in_update_));
      std::iota(update_order.begin(), update_order.end(), 0);
      random.shuffle(update_order);
      for (int64_t update : update_order)
        bucketed_rows.insert(bucketed_rows.end(), begin + update * num_rows_in_update_,
                             begin + (update + 1) * num_rows_in_update_);
      bucketed_rows.insert(bucketed_rows.end(), begin + static_cast<int64_t>(update_order.size()) * num_rows_in_update_,
                           end);
    }
    shuffled_rows_ = std::move(bucketed_rows);
  }

  template <class Iterator>
  void sort_longest_first(int64_t epoch, Iterator begin, Iterator end) const {
    const ExampleSource& source = examples_.source();
    std::stable_sort(begin, end,
                     [&](int64_t a, int64_t b) { return source.length(epoch, a) > source.length(epoch, b); });
  }

  // Determines which rows of the epoch belong to the update, and their lengths; does not make the rows.
  void select_rows(int64_t update) {
    if (update == update_) return;
    const int64_t epoch = update / updates_per_epoch_, first_row = update % updates_per_epoch_ * num_rows_in_update_;
    if (epoch != epoch_) shuffle_rows(epoch);
    epoch_ = epoch;
    update_rows_.assign(shuffled_rows_.begin() + first_row,
                        shuffled_rows_.begin() + std::min(num_rows_in_epoch_, first_row + num_rows_in_update_));
    sort_longest_first(epoch, update_rows_.begin(), update_rows_.end());
    row_lengths_.clear();
    for (const int64_t row : update_rows_) row_lengths_.push_back(examples_.source().length(epoch, row));
    next_sentence_weight_ = examples_.source().next_sentence_weight(epoch, update_rows_);
    update_ = update;
  }

  const Examples examples_;
  const BatchOptions options_;
  const int64_t seed_;
  int64_t num_rows_in_epoch_ = 0, num_rows_in_update_ = 0;
  int64_t epoch_ = -1, update_ = -1;    // epoch and update of the selected rows; -1: none
  std::vector<int64_t> shuffled_rows_;  // shuffled row indices of epoch_
  std::vector<int64_t> row_lengths_;    // tokens of each row of update_rows_
  std::vector<int64_t> update_rows_;    // indices in the epoch of the rows of update_, longest first
  double next_sentence_weight_ = 1;
};

}  // namespace

int64_t example_length_to_updates(const Length& length, int64_t updates_per_epoch) {
  return count_updates(length, updates_per_epoch, [&](int64_t) -> int64_t {
    refuse_usage(length.origin, "a number of updates or epochs, since examples differ in length",
                 to_string(length) + ", a number of tokens",
                 "give the length in epochs, such as 3e, or in updates, such as 1000u");
  });
}

std::unique_ptr<Batches> make_batches(Examples examples, const BatchOptions& options, int64_t seed) {
  return std::make_unique<ExampleBatches>(std::move(examples), options, seed);
}

}  // namespace mh::data
