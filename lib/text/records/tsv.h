// Tab-separated files of examples: the columns that hold texts and label, and batches of lines.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/text_batches.h"

namespace mh::text {

// The columns of a tab-separated file that hold the texts and the label, numbered from 0.
struct ExampleColumns {
  static constexpr size_t kNone = SIZE_MAX;
  size_t first_text = 0, second_text = kNone, label = kNone;
  size_t num_columns = 0;      // required number of columns of each line; 0: at least min_columns()
  bool has_header = false;     // whether the first line is a header
  size_t min_columns() const;  // minimum number of columns of a line: all columns up to the last one in use
};
// Function that determines the columns from the fields of a file's first line, and throws Error if columns are missing.
// `where` is file and line for messages.
using FindColumns = std::function<ExampleColumns(const std::vector<std::string>& fields, const std::string& where)>;
// Returns the index, from 0, of the column that `name` selects: the column with this name in `header` or, if `header`
// is null or lacks the name, the column with this number from 1 to `num_columns`; std::nullopt if there is no such
// column.
std::optional<size_t> column_at(const std::string& name, const std::vector<std::string>* header, size_t num_columns);

// Returns the fields of a line. Throws Error(input) for a line of more than 2^16 columns. `where`: file and line for
// the message.
std::vector<std::string> split_columns(std::string_view line, const std::string& where);

// Lines of one file, without its header.
struct ExampleBatch {
  TextBatch text;
  ExampleColumns columns;

  std::string_view line(const TextBatch::Segment& segment) const {
    return std::string_view(text.text).substr(segment.begin, segment.end - segment.begin);
  }
};

// Reads batches of lines, and determines the columns of each file from its first line. The arguments must outlive the
// object.
class ExampleBatches {
 public:
  ExampleBatches(TextBatches& text, const FindColumns& find_columns) : text_(text), find_columns_(find_columns) {}
  // Reads the next batch; returns false at the end of the last file. Throws the errors of `find_columns`, and
  // Error(input) for a first line that is not UTF-8 text.
  bool next(ExampleBatch& batch);

 private:
  TextBatches& text_;
  const FindColumns& find_columns_;
  ExampleColumns columns_;  // columns of the current file
};

}  // namespace mh::text
