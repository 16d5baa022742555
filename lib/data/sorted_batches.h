// The order of training rows of different lengths, such as sentence pairs: rows of similar length form an update. Rows
// are shuffled by (seed, epoch) and then stably sorted by length, so that rows of equal length are shuffled among
// updates; the updates of an epoch are shuffled by (seed, epoch), too.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "data/batches.h"

namespace mh::data {

class SortedBatches {
 public:
  // Returns the numbers of tokens by which rows are sorted, the first number first; a row is padded to the larger
  // number of its update.
  using RowLengths = std::function<std::pair<int64_t, int64_t>(int64_t row)>;

  // `options.tokens`: maximum number of tokens of an update, padding included, unless it is a single row.
  // `options.micro_tokens`: the same for micro-batches; 0: one micro-batch. `random_stream`: name of the random stream
  // that shuffles the rows.
  SortedBatches(int64_t num_rows, RowLengths lengths, const BatchOptions& options, int64_t seed,
                std::string random_stream);

  int64_t updates_per_epoch() const { return static_cast<int64_t>(batch_ranges_.size()); }
  // Returns the number of rows of an update.
  int64_t num_rows(int64_t update) { return range_of(update).num_rows; }
  // Returns the corpus row that is row `index`, counted from 0, of an update.
  int64_t row(int64_t update, int64_t index) { return row_at(range_of(update).first_row + index); }
  // Returns the number of tokens to which the rows of an update are padded.
  int64_t width(int64_t update);
  // Implements Batches::micro_batches_of().
  std::vector<Batches::MicroBatch> micro_batches_of(int64_t update, const BatchRowRange& rows);

 private:
  void sort_rows(int64_t epoch);
  void shuffle_batches(int64_t epoch);
  BatchRowRange range_of(int64_t update);
  int64_t row_at(int64_t position) const { return sorted_rows_[static_cast<size_t>(position)]; }
  int64_t width_of(int64_t row) const;

  const RowLengths lengths_;
  const int64_t micro_tokens_, seed_;
  const std::string random_stream_;
  std::vector<BatchRowRange> batch_ranges_;  // ranges of positions in sorted_rows_, the same in every epoch
  int64_t epoch_ = 0;                        // epoch of sorted_rows_ and batch_order_
  std::vector<int64_t> sorted_rows_;         // row at each position after sorting by length
  std::vector<int64_t> batch_order_;         // index in batch_ranges_ of each update of the epoch
};

}  // namespace mh::data
