// Prints results as a table: tab-separated values after a header line, which gnuplot, pandas and `column -t` read, or
// one JSON object per row. In tab-separated values, spaces, control characters and backslashes of a text are escaped as
// in "\x20", so that readers can restore the text; an empty text is "-", and the text "-" is "\x2d".
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace mh {

class Table {
 public:
  enum class Format { table, json };
  // Returns Format::json for the name "json", otherwise Format::table.
  static Format format_named(const std::string& name);

  // Creates a table on standard output. `has_other_outputs`: whether the command also writes files. If standard output
  // is a pipe that its reader has closed, print_row() throws BrokenPipe or, if `has_other_outputs`, discards the row,
  // so that the command still writes its files.
  explicit Table(Format format, bool has_other_outputs = false)
      : format_(format), has_other_outputs_(has_other_outputs) {}
  // Prints a row and flushes it, so that a later error does not lose it. All rows must have the same keys in the same
  // order; otherwise print_row() throws std::logic_error. NaN, an undefined number, is printed as "nan" and infinity as
  // "inf" or "-inf" in tab-separated values; in JSON NaN and infinity are null.
  void print_row(const nlohmann::ordered_json& row);

 private:
  void print(const std::string& text) const;

  Format format_;
  bool has_other_outputs_;
  std::vector<std::string> keys_;  // column names; empty before the first row
};

// Returns `text` as one of several tab-separated values, with escapes.
std::string table_field(const std::string& text);

// Returns the line "key<TAB>value" with a line feed, for lists with one value per line. In a text value only control
// characters and backslashes are escaped, as in "\x0a"; other values are JSON.
std::string key_value_line(const std::string& key, const nlohmann::ordered_json& value);

}  // namespace mh
