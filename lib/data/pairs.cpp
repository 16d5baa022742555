#include "data/pairs.h"

#include <algorithm>

#include "data/batches.h"

namespace mh::data {

Pairs::Pairs(text::Sequences sequences, int32_t source_end_id, int32_t target_end_id)
    : sequences_(std::make_shared<const text::Sequences>(std::move(sequences))),
      source_end_id_(source_end_id),
      target_end_id_(target_end_id) {
  const auto statistics = std::make_shared<Statistics>();
  const size_t count = sequences_->ends.size() / 2;
  statistics->num_targets_before.reserve(count);
  for (size_t i = 0; i < count; ++i) {
    const auto pair = static_cast<int64_t>(i);
    statistics->num_targets_before.push_back(statistics->num_targets);
    statistics->num_targets += target_length(pair);
    statistics->max_length = std::max({statistics->max_length, source_length(pair), target_length(pair)});
  }
  statistics_ = statistics;
}

Row Pairs::row_of(int64_t pair) const {
  return {statistics_->num_targets_before[static_cast<size_t>(pair)], target_length(pair), 0, pair};
}

Batch Pairs::load(const std::vector<int64_t>& indices, std::vector<Row>& rows) const {
  for (int64_t pair : indices) rows.push_back(row_of(pair));
  return load_pairs(*this, rows);
}

std::unique_ptr<Batches> Pairs::batches(const BatchOptions& options, int64_t seed) const {
  return make_batches(*this, options, seed);
}

Batch load_pairs(const Pairs& pairs, const std::vector<Row>& rows) {
  const auto count = static_cast<int64_t>(rows.size());
  int64_t width = 0, source_width = 0;
  for (const Row& row : rows) {
    width = std::max(width, row.length);
    source_width = std::max(source_width, pairs.source_length(row.record_index));
  }
  Batch batch{{at::full({count, width}, static_cast<int64_t>(pairs.target_end_id()), at::kLong),
               at::full({count, source_width}, static_cast<int64_t>(pairs.source_end_id()), at::kLong),
               {at::empty({count}, at::kLong), at::empty({count}, at::kLong)}},
              at::full({count, width}, -1, at::kLong)};
  auto* input_data = batch.input.tokens.mutable_data_ptr<int64_t>();
  auto* source_data = batch.input.source.mutable_data_ptr<int64_t>();
  auto* target_data = batch.targets.mutable_data_ptr<int64_t>();
  auto* length_data = batch.input.lengths.decoder.mutable_data_ptr<int64_t>();
  auto* source_length_data = batch.input.lengths.encoder.mutable_data_ptr<int64_t>();
  for (const Row& row : rows) {
    const std::vector<int32_t> source_tokens = pairs.source(row.record_index),
                               target_tokens = pairs.target(row.record_index);
    std::copy(source_tokens.begin(), source_tokens.end(), source_data);
    if (!target_tokens.empty())
      std::copy(target_tokens.begin(), target_tokens.end() - 1,
                input_data + 1);  // input_data[0] stays the end-of-line token
    std::copy(target_tokens.begin(), target_tokens.end(), target_data);
    *length_data++ = row.length;
    *source_length_data++ = static_cast<int64_t>(source_tokens.size());
    input_data += width, target_data += width, source_data += source_width;
  }
  return batch;
}

}  // namespace mh::data
