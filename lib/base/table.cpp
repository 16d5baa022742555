#include "base/table.h"

#include <cmath>
#include <stdexcept>

#include "base/error.h"
#include "base/file.h"
#include "base/json_types.h"
#include "base/text.h"

namespace mh {

using nlohmann::ordered_json;

namespace {

// Returns `text` with control characters and backslashes escaped as in "\x0a", and spaces as "\x20" unless
// `allows_spaces`.
std::string escape_text(const std::string& text, bool allows_spaces) {
  std::string out;
  for (char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if ((byte > ' ' && byte != 0x7F && c != '\\') || (c == ' ' && allows_spaces)) {
      out += c;
    } else {
      out += escaped_byte(c);
    }
  }
  return out;
}

std::string value_text(const ordered_json& value) {
  if (value.is_string()) return table_field(value.get<std::string>());
  if (const double x = value.is_number_float() ? value.get<double>() : 0; !std::isfinite(x))
    return std::isnan(x) ? "nan" : x > 0 ? "inf" : "-inf";
  return value.dump();
}

}  // namespace

// Escapes spaces and replaces an empty text, since either would shift the following values for readers that split lines
// at spaces.
std::string table_field(const std::string& text) {
  if (text.empty()) return "-";
  return text == "-" ? "\\x2d" : escape_text(text, false);
}

std::string key_value_line(const std::string& key, const ordered_json& value) {
  return key + "\t" + (value.is_string() ? escape_text(value.get<std::string>(), true) : value.dump()) + "\n";
}

Table::Format Table::format_named(const std::string& name) { return name == "json" ? Format::json : Format::table; }

void Table::print_row(const ordered_json& row) {
  std::vector<std::string> keys, values;
  for (auto& [key, value] : row.items()) {
    keys.push_back(key);
    values.push_back(value_text(value));
  }
  const bool is_first_row = keys_.empty();
  if (is_first_row) keys_ = keys;
  if (keys != keys_) throw std::logic_error("all rows of a table must have the same keys; found: " + join(keys, " "));
  if (format_ == Format::json) return print(row.dump(-1, ' ', false, ordered_json::error_handler_t::replace) + "\n");
  print((is_first_row ? join(keys, "\t") + "\n" : "") + join(values, "\t") + "\n");
}

void Table::print(const std::string& text) const {
  const auto write = [&] {
    auto sink = open_sink("-");
    sink->write(text);
    sink->close();
  };
  if (has_other_outputs_) ignore_broken_pipe(write);
  else write();
}

}  // namespace mh
