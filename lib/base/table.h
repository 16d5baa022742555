// Results as rows for people and programs: tab-separated after a header line, for gnuplot, pandas and `column -t`, or
// one JSON object a line. Blanks, control characters and backslashes in a text field of a table are written like
// "\x20", so that a reader can restore the text. An empty text is "-", and the text "-" is "\x2d".
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
  // Writes a row at once, so that no later error loses it. All rows have the same keys in the same order; an undefined
  // number is NaN ("nan"), an overflow infinity ("inf"); JSON has null for both.
  void row(const nlohmann::ordered_json& row);

 private:
  Format format_;
  std::vector<std::string> keys_;  // keys of the header; none before the first row
};

// Returns a text as a field of a table.
std::string table_field(const std::string& text);

// Returns "key<TAB>value" and a line feed, for lists with one value a line: texts are literal except for control
// characters and backslashes, written like "\x0a"; other values are JSON.
std::string key_and_value(const std::string& key, const nlohmann::ordered_json& value);

}  // namespace mh
