#include "task/rows.h"

#include <algorithm>

#include "io/shard.h"

namespace mh::task {

Text text_of(const io::ShardFile& shard, int32_t end_of_line) {
  return {static_cast<int64_t>(shard.counts().tokens), end_of_line,
          [&shard](int64_t first, std::span<int32_t> out) { shard.read(static_cast<uint64_t>(first), out); }};
}

Text text_of(const std::vector<int32_t>& tokens, int32_t end_of_line) {
  return {static_cast<int64_t>(tokens.size()), end_of_line, [&tokens](int64_t first, std::span<int32_t> out) {
            std::copy_n(tokens.begin() + first, out.size(), out.begin());
          }};
}

Batch load_rows(const Text& text, const std::vector<Row>& rows, int64_t width) {
  const auto count = static_cast<int64_t>(rows.size());
  Batch batch{at::full({count, width}, static_cast<int64_t>(text.end_of_line), at::kLong),
              at::full({count, width}, -1, at::kLong), at::empty({count}, at::kLong)};
  auto* in = batch.inputs.mutable_data_ptr<int64_t>();
  auto* out = batch.targets.mutable_data_ptr<int64_t>();
  auto* length = batch.lengths.mutable_data_ptr<int64_t>();
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

Row Streams::row(int64_t stream, int64_t segment) const {
  const int64_t each = tokens_ / count_, longer = tokens_ % count_;
  const int64_t first = stream * each + std::min(stream, longer), length = each + (stream < longer ? 1 : 0);
  const int64_t at = std::min(segment * block_, length);
  return {first + at, std::min(block_, length - at), 0};
}

}  // namespace mh::task
