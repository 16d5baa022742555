#include "data/independent_rows.h"

#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "data/sample.h"

namespace mh::data {

namespace {

// Number of rows that are sorted by length together. Results are reported in the order of the corpus, so at most this
// many results wait in memory.
constexpr int64_t kSortWindowRows = 4096;

}  // namespace

ScoringOptions IndependentRows::resolve(const ScoringOptions& options, model::LanguageModel& model) const {
  if (options.has_independent_rows) return options;  // the options are already resolved
  auto refuse = [](const char* option, int64_t value) {
    refuse_usage(option, "0 for sentence pairs and examples, since only a text supports this option", str(value),
                 str("leave ", option, " out"));
  };
  ScoringOptions o = options;
  if (o.block > 0) refuse("--block", o.block);
  if (o.context > 0) refuse("--context", o.context);
  if (o.memory > 0) refuse("--memory", o.memory);
  if (o.streams > 0) refuse("--streams", o.streams);
  o.sample.blocks = sample_size(o.sample, size(), "the number of sentence pairs or examples", "lower --blocks");
  o.memory = 0;
  o.has_independent_rows = true;
  o.block = std::max<int64_t>(1, max_length());
  model.require_length("the longest sentence", o.block);
  if (o.batch == 0) o.batch = std::max<int64_t>(1, 4096 / o.block);
  return o;
}

MiniBatches IndependentRows::mini_batches(const ScoringOptions& o) const {
  std::vector<int64_t> row_indices(static_cast<size_t>(size()));
  if (o.sample.blocks > 0) row_indices = draw_sample(o.sample.blocks, size(), o.sample.seed);
  else std::iota(row_indices.begin(), row_indices.end(), 0);
  const auto num_rows = static_cast<int64_t>(row_indices.size());
  auto next = [this, row_indices = std::move(row_indices), max_batch_tokens = o.batch * o.block,
               sorted_window = std::vector<int64_t>(), next_begin = size_t{0},
               window_index = size_t{0}]() mutable -> std::optional<MiniBatch> {
    if (window_index == sorted_window.size()) {
      const size_t end = std::min(row_indices.size(), next_begin + static_cast<size_t>(kSortWindowRows));
      if (next_begin == end) return std::nullopt;
      sorted_window.assign(row_indices.begin() + static_cast<int64_t>(next_begin),
                           row_indices.begin() + static_cast<int64_t>(end));
      std::stable_sort(sorted_window.begin(), sorted_window.end(),
                       [&](int64_t a, int64_t b) { return lengths(a) < lengths(b); });
      next_begin = end, window_index = 0;
    }
    std::vector<int64_t> batch_indices;
    int64_t max_length = 0;
    for (; window_index < sorted_window.size(); ++window_index) {
      const auto [target_length, source_length] = lengths(sorted_window[window_index]);
      max_length = std::max({max_length, target_length, source_length});
      if (!batch_indices.empty() && max_length * (static_cast<int64_t>(batch_indices.size()) + 1) > max_batch_tokens)
        break;
      batch_indices.push_back(sorted_window[window_index]);
    }
    MiniBatch mini_batch;
    mini_batch.batch = load(batch_indices, mini_batch.rows);
    mini_batch.ends_streams = window_index == sorted_window.size();
    mini_batch.progress_rows = static_cast<int64_t>(mini_batch.rows.size());
    return mini_batch;
  };
  return {std::move(next), num_rows};
}

}  // namespace mh::data
