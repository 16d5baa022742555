#include "data/independent_rows.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/error.h"
#include "data/sample.h"
#include "data/sorted_rows.h"

namespace mh::data {

ScoringOptions IndependentRows::resolve(const ScoringOptions& options, model::LanguageModel& model) const {
  if (options.has_independent_rows) return options;  // the options are already resolved
  auto refuse = [](const char* option, const char* expected, const auto& value) {
    refuse_usage(option, str(expected, " for sentence pairs and examples, since only a text supports this option"),
                 str(value), str("leave ", option, " out"));
  };
  ScoringOptions o = options;
  if (o.sequence_length > 0) refuse("--sequence-length", "0", o.sequence_length);
  if (o.context > 0) refuse("--context", "0", o.context);
  if (o.uses_begin_token()) refuse("--begin", "none", name_of(o.begin));
  if (o.memory > 0) refuse("--memory", "0", o.memory);
  if (o.streams > 0) refuse("--streams", "0", o.streams);
  o.sample.blocks = sample_size(o.sample, size(), "the number of sentence pairs or examples", "lower --blocks");
  o.memory = 0;
  o.begin = Begin::none;
  o.has_independent_rows = true;
  o.sequence_length = std::max<int64_t>(1, max_length());
  model.require_length("the longest sentence", o.sequence_length);
  if (o.batch == 0) o.batch = std::max<int64_t>(1, 4096 / o.sequence_length);
  return o;
}

MiniBatches IndependentRows::mini_batches(const ScoringOptions& o) const {
  std::vector<int64_t> row_indices(static_cast<size_t>(size()));
  if (o.sample.blocks > 0) row_indices = draw_sample(o.sample.blocks, size(), o.sample.seed);
  else std::iota(row_indices.begin(), row_indices.end(), 0);
  return sorted_mini_batches(
      std::move(row_indices), o.batch * o.sequence_length,
      {[this](int64_t row) { return lengths(row); },
       [this](const std::vector<int64_t>& indices, std::vector<Row>& rows) { return load(indices, rows); }});
}

}  // namespace mh::data
