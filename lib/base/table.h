// Results as rows for people and programs: tab-separated behind a header line, which gnuplot, pandas and `column -t`
// read as they are, or one JSON object a line. Blanks, control characters and backslashes in a text field of a table
// are written as in "\x20", so that a reader can restore the text. An empty text is "-", and the text "-" is "\x2d".
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace mh {

class Table {
 public:
  enum class Format { text, json };
  static Format format_named(const std::string& name);  // "table", "json"

  // Writes to standard output.
  explicit Table(Format format) : format_(format) {}
  // A row at once, so that no later error loses it. All rows have the same keys, in the same order; a number that does
  // not exist is NaN ("nan"), one too large infinity ("inf"); JSON has null for both.
  void row(const nlohmann::ordered_json& row);

 private:
  Format format_;
  std::vector<std::string> keys_;  // of the header; none before the first row
};

// Text as a field of a table.
std::string table_field(const std::string& text);

// "key<TAB>value" and a line feed, for lists of a value a line: text as it is but for control characters and
// backslashes, which are written as in "\x0a"; other values as JSON.
std::string key_and_value(const std::string& key, const nlohmann::ordered_json& value);

}  // namespace mh
