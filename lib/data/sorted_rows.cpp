#include "data/sorted_rows.h"

#include <algorithm>
#include <optional>

namespace mh::data {

namespace {

// Number of rows that are sorted by length together. Results are reported in the order of the corpus, so at most this
// many results wait in memory.
constexpr int64_t kSortWindowRows = 4096;

}  // namespace

MiniBatches sorted_mini_batches(std::vector<int64_t> row_indices, int64_t max_batch_tokens, const SortedRows& rows) {
  const auto num_rows = static_cast<int64_t>(row_indices.size());
  auto next = [row_indices = std::move(row_indices), max_batch_tokens, rows, sorted_window = std::vector<int64_t>(),
               next_begin = size_t{0}, window_index = size_t{0}]() mutable -> std::optional<MiniBatch> {
    if (window_index == sorted_window.size()) {
      const size_t end = std::min(row_indices.size(), next_begin + static_cast<size_t>(kSortWindowRows));
      if (next_begin == end) return std::nullopt;
      sorted_window.assign(row_indices.begin() + static_cast<int64_t>(next_begin),
                           row_indices.begin() + static_cast<int64_t>(end));
      std::stable_sort(sorted_window.begin(), sorted_window.end(),
                       [&](int64_t a, int64_t b) { return rows.lengths(a) < rows.lengths(b); });
      next_begin = end, window_index = 0;
    }
    std::vector<int64_t> batch_indices;
    int64_t max_length = 0;
    for (; window_index < sorted_window.size(); ++window_index) {
      const auto [first_length, second_length] = rows.lengths(sorted_window[window_index]);
      max_length = std::max({max_length, first_length, second_length});
      if (!batch_indices.empty() && max_length * (static_cast<int64_t>(batch_indices.size()) + 1) > max_batch_tokens)
        break;
      batch_indices.push_back(sorted_window[window_index]);
    }
    MiniBatch mini_batch;
    mini_batch.batch = rows.load(batch_indices, mini_batch.rows);
    mini_batch.ends_streams = window_index == sorted_window.size();
    mini_batch.progress_rows = static_cast<int64_t>(mini_batch.rows.size());
    return mini_batch;
  };
  return {std::move(next), num_rows};
}

}  // namespace mh::data
