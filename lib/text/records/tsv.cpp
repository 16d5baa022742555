#include "text/records/tsv.h"

#include <algorithm>
#include <charconv>

#include "base/error.h"
#include "base/text.h"

namespace mh::text {

namespace {

// Maximum number of columns of a line. Bounds the memory, since a string for a column of one byte takes 32 bytes.
constexpr int64_t kMaxColumns = 1 << 16;

}  // namespace

size_t ExampleColumns::min_columns() const {
  size_t num_used_columns = 0;
  for (size_t column : {first_text, second_text, label})
    if (column != kNone) num_used_columns = std::max(num_used_columns, column + 1);
  return num_used_columns;
}

std::optional<size_t> column_at(const std::string& name, const std::vector<std::string>* header, size_t num_columns) {
  if (header != nullptr)
    if (const auto it = std::find(header->begin(), header->end(), name); it != header->end())
      return static_cast<size_t>(it - header->begin());
  size_t column_number = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), column_number);
  if (error != std::errc() || end != name.data() + name.size() || column_number < 1 || column_number > num_columns)
    return std::nullopt;
  return column_number - 1;
}

std::vector<std::string> split_columns(std::string_view line, const std::string& where) {
  if (const auto num_columns = 1 + std::ranges::count(line, '\t'); num_columns > kMaxColumns)
    refuse_input(where, str("at most ", kMaxColumns, " columns"), count_of(num_columns, "column"),
                 "separate columns by single tabs, and lines by newlines");
  return split(line, '\t');
}

bool ExampleBatches::next(ExampleBatch& batch) {
  if (!text_.next(batch.text)) return false;
  auto& segments = batch.text.segments;
  if (segments.front().line_number == 1) {
    const TextBatch::Segment& first_line = segments.front();
    check_text(batch.text, first_line, false);
    const std::string where = str(batch.text.file, ":1");
    columns_ = find_columns_(split_columns(batch.line(first_line), where), where);
    if (columns_.has_header) segments.erase(segments.begin());
  }
  batch.columns = columns_;
  return true;
}

}  // namespace mh::text
