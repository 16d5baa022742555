#include "data/examples.h"

#include <algorithm>

#include "data/batches.h"

namespace mh::data {

int64_t Examples::max_length() const {
  int64_t max_length = 0;
  for (int64_t row = 0; row < size(); ++row) max_length = std::max(max_length, source_->length(0, row));
  return max_length;
}

Batch Examples::load(const std::vector<int64_t>& indices, std::vector<Row>& rows) const {
  std::vector<text::Example> examples;
  for (int64_t row : indices) {
    examples.push_back(source_->make(0, row));
    rows.push_back({0, static_cast<int64_t>(examples.back().targets.size()), 0, row});
  }
  return load_examples(*this, examples);
}

std::unique_ptr<Batches> Examples::batches(const BatchOptions& options, int64_t seed) const {
  return make_batches(*this, options, seed);
}

Batch load_examples(const Examples& corpus, std::span<const text::Example> examples) {
  const auto count = static_cast<int64_t>(examples.size());
  const bool adds_length = corpus.source().needs_lengths();
  size_t width = 0, max_targets = 0;
  for (const text::Example& e : examples) {
    width = std::max(width, e.tokens.size());
    max_targets = std::max(max_targets, e.targets.size() + (adds_length ? 1 : 0));
  }
  const auto row_length = static_cast<int64_t>(width), n = static_cast<int64_t>(max_targets);
  Batch batch{model::Input{at::full({count, row_length}, static_cast<int64_t>(corpus.padding_id()), at::kLong)},
              at::full({count, n}, -1, at::kLong)};
  batch.input.segments = at::zeros({count, row_length}, at::kLong);
  batch.input.lengths.encoder = at::empty({count}, at::kLong);
  auto* input_data = batch.input.tokens.mutable_data_ptr<int64_t>();
  auto* segment_data = batch.input.segments.mutable_data_ptr<int64_t>();
  auto* target_data = batch.targets.mutable_data_ptr<int64_t>();
  auto* length_data = batch.input.lengths.encoder.mutable_data_ptr<int64_t>();
  for (const text::Example& e : examples) {
    const auto num_tokens = static_cast<int64_t>(e.tokens.size());
    std::copy(e.tokens.begin(), e.tokens.end(), input_data);
    std::fill(segment_data + e.first_segment_length, segment_data + num_tokens, 1);
    std::copy(e.targets.begin(), e.targets.end(), target_data);
    if (adds_length) target_data[e.targets.size()] = -num_tokens;
    *length_data++ = num_tokens;
    input_data += row_length, segment_data += row_length, target_data += n;
  }
  return batch;
}

}  // namespace mh::data
