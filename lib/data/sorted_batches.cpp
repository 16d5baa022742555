#include "data/sorted_batches.h"

#include <algorithm>
#include <numeric>

#include "base/random.h"

namespace mh::data {

SortedBatches::SortedBatches(int64_t num_rows, RowLengths lengths, const BatchOptions& options, int64_t seed,
                             std::string random_stream)
    : lengths_(std::move(lengths)),
      micro_tokens_(options.micro_tokens),
      seed_(seed),
      random_stream_(std::move(random_stream)),
      sorted_rows_(static_cast<size_t>(num_rows)) {
  sort_rows(0);
  // Sorting gives each position the same lengths in every epoch, so the boundaries of updates are computed once.
  int64_t max_width = 0, first_position = 0;
  for (int64_t i = 0; i < num_rows; ++i) {
    const int64_t row_width = width_of(row_at(i)), width_with_row = std::max(max_width, row_width);
    if (i > first_position && width_with_row * (i - first_position + 1) > options.tokens) {
      batch_ranges_.push_back({first_position, i - first_position});
      first_position = i, max_width = row_width;
    } else {
      max_width = width_with_row;
    }
  }
  batch_ranges_.push_back({first_position, num_rows - first_position});
  shuffle_batches(0);
}

int64_t SortedBatches::width_of(int64_t row) const {
  const auto [first_length, second_length] = lengths_(row);
  return std::max(first_length, second_length);
}

int64_t SortedBatches::width(int64_t update) {
  const BatchRowRange range = range_of(update);
  int64_t max_width = 0;
  for (int64_t i = 0; i < range.num_rows; ++i) max_width = std::max(max_width, width_of(row_at(range.first_row + i)));
  return max_width;
}

std::vector<Batches::MicroBatch> SortedBatches::micro_batches_of(int64_t update, const BatchRowRange& rows) {
  if (rows.num_rows == 0) return {};
  if (micro_tokens_ == 0) return {{rows.first_row, rows.num_rows}};
  const int64_t max_rows = std::max<int64_t>(1, micro_tokens_ / std::max<int64_t>(1, width(update)));
  std::vector<Batches::MicroBatch> micro_batches;
  for (int64_t first = 0; first < rows.num_rows; first += max_rows)
    micro_batches.push_back({rows.first_row + first, std::min(max_rows, rows.num_rows - first)});
  return micro_batches;
}

void SortedBatches::sort_rows(int64_t epoch) {
  std::iota(sorted_rows_.begin(), sorted_rows_.end(), 0);
  RandomSequence random(RandomStream(static_cast<uint64_t>(seed_), random_stream_), static_cast<uint32_t>(epoch));
  random.shuffle(sorted_rows_);
  std::stable_sort(sorted_rows_.begin(), sorted_rows_.end(),
                   [&](int64_t a, int64_t b) { return lengths_(a) < lengths_(b); });
}

void SortedBatches::shuffle_batches(int64_t epoch) {
  batch_order_.resize(batch_ranges_.size());
  std::iota(batch_order_.begin(), batch_order_.end(), 0);
  RandomSequence random(RandomStream(static_cast<uint64_t>(seed_), "batches"), static_cast<uint32_t>(epoch));
  random.shuffle(batch_order_);
}

// Returns the range of positions in `sorted_rows_` that an update takes. If the update belongs to another epoch than
// `epoch_`, first shuffles rows and updates for that epoch.
BatchRowRange SortedBatches::range_of(int64_t update) {
  const int64_t epoch = update / updates_per_epoch();
  if (epoch != epoch_) {
    sort_rows(epoch);
    shuffle_batches(epoch);
    epoch_ = epoch;
  }
  return batch_ranges_[static_cast<size_t>(batch_order_[static_cast<size_t>(update % updates_per_epoch())])];
}

}  // namespace mh::data
