#include "task/rows.h"

#include <algorithm>

namespace mh::task {

namespace {

at::Tensor empty_lengths(int64_t rows) { return at::empty({rows}, at::kLong); }

}  // namespace

Batch load_rows(const Text& text, const std::vector<Row>& rows, int64_t width) {
  const auto count = static_cast<int64_t>(rows.size());
  Batch batch{{at::full({count, width}, static_cast<int64_t>(text.end_of_line), at::kLong), {}, empty_lengths(count)},
              at::full({count, width}, -1, at::kLong)};
  auto* in = batch.input.tokens.mutable_data_ptr<int64_t>();
  auto* out = batch.targets.mutable_data_ptr<int64_t>();
  auto* length = batch.input.lengths.decoder.mutable_data_ptr<int64_t>();
  std::vector<int32_t> tokens(static_cast<size_t>(width) + 1);
  for (const Row& row : rows) {
    *length++ = row.length;
    if (row.length > 0) {
      // The token before the row comes along: the row's first input.
      const int64_t before = row.first > 0 ? 1 : 0;
      tokens[0] = text.end_of_line;
      text.read(row.first - before,
                std::span(tokens).subspan(static_cast<size_t>(1 - before), static_cast<size_t>(row.length + before)));
      std::copy_n(tokens.begin(), row.length, in);
      std::copy_n(tokens.begin() + 1 + row.scored, row.length - row.scored, out + row.scored);
    }
    in += width, out += width;
  }
  return batch;
}

Row row_of(const Pairs& pairs, int64_t pair) {
  return {pairs.targets_before[static_cast<size_t>(pair)], pairs.target_length(pair), 0, pair};
}

Batch load_pairs(const Pairs& pairs, const std::vector<Row>& rows) {
  const auto count = static_cast<int64_t>(rows.size());
  int64_t width = 0, source_width = 0;
  for (const Row& row : rows) {
    width = std::max(width, row.length);
    source_width = std::max(source_width, pairs.source_length(row.pair));
  }
  Batch batch{{at::full({count, width}, static_cast<int64_t>(pairs.target_end), at::kLong),
               at::full({count, source_width}, static_cast<int64_t>(pairs.source_end), at::kLong),
               {empty_lengths(count), empty_lengths(count)}},
              at::full({count, width}, -1, at::kLong)};
  auto* in = batch.input.tokens.mutable_data_ptr<int64_t>();
  auto* source = batch.input.source.mutable_data_ptr<int64_t>();
  auto* out = batch.targets.mutable_data_ptr<int64_t>();
  auto* length = batch.input.lengths.decoder.mutable_data_ptr<int64_t>();
  auto* source_length = batch.input.lengths.encoder.mutable_data_ptr<int64_t>();
  for (const Row& row : rows) {
    const std::vector<int32_t> from = pairs.source(row.pair), to = pairs.target(row.pair);
    std::copy(from.begin(), from.end(), source);
    if (!to.empty()) std::copy(to.begin(), to.end() - 1, in + 1);  // behind the end-of-line symbol
    std::copy(to.begin(), to.end(), out);
    *length++ = row.length;
    *source_length++ = static_cast<int64_t>(from.size());
    in += width, out += width, source += source_width;
  }
  return batch;
}

Batch load_examples(const Examples& corpus, std::span<const text::Example> examples) {
  const auto count = static_cast<int64_t>(examples.size());
  const bool spans = corpus.head == model::HeadTask::span;  // whose targets the length of their row follows
  size_t width = 0, targets = 0;
  for (const text::Example& e : examples) {
    width = std::max(width, e.tokens.size());
    targets = std::max(targets, e.targets.size() + (spans ? 1 : 0));
  }
  const auto wide = static_cast<int64_t>(width), n = static_cast<int64_t>(targets);
  Batch batch{at::full({count, wide}, static_cast<int64_t>(corpus.padding), at::kLong),
              at::full({count, n}, -1, at::kLong)};
  batch.input.segments = at::zeros({count, wide}, at::kLong);
  batch.input.lengths.encoder = empty_lengths(count);
  auto* in = batch.input.tokens.mutable_data_ptr<int64_t>();
  auto* segment = batch.input.segments.mutable_data_ptr<int64_t>();
  auto* out = batch.targets.mutable_data_ptr<int64_t>();
  auto* length = batch.input.lengths.encoder.mutable_data_ptr<int64_t>();
  for (const text::Example& e : examples) {
    const auto tokens = static_cast<int64_t>(e.tokens.size());
    std::copy(e.tokens.begin(), e.tokens.end(), in);
    std::fill(segment + e.first, segment + tokens, 1);
    std::copy(e.targets.begin(), e.targets.end(), out);
    if (spans) out[e.targets.size()] = -tokens;
    *length++ = tokens;
    in += wide, segment += wide, out += n;
  }
  return batch;
}

Row Streams::row(int64_t stream, int64_t segment) const {
  const int64_t each = tokens_ / count_, longer = tokens_ % count_;
  const int64_t first = stream * each + std::min(stream, longer), length = each + (stream < longer ? 1 : 0);
  const int64_t at = std::min(segment * block_, length);
  return {first + at, std::min(block_, length - at), 0};
}

}  // namespace mh::task
