#include "base/table.h"

#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "base/file.h"
#include "base/text.h"

namespace mh {

using nlohmann::ordered_json;

namespace {

// An empty field would shift those behind it for readers that split at blanks, and so would a blank in one.
std::string field(const std::string& text) {
  std::string out;
  for (char c : text) {
    char escape[8];
    std::snprintf(escape, sizeof escape, "\\x%02x", static_cast<unsigned char>(c));
    const bool blank = static_cast<unsigned char>(c) <= ' ';
    out += blank ? escape : std::string(1, c);
  }
  return out.empty() ? "-" : out;
}

std::string field(const ordered_json& value) {
  if (value.is_string()) return field(value.get<std::string>());
  if (const double x = value.is_number_float() ? value.get<double>() : 0; !std::isfinite(x))
    return std::isnan(x) ? "nan" : x > 0 ? "inf" : "-inf";
  return value.dump();
}

}  // namespace

Table::Format Table::format_named(const std::string& name) { return name == "json" ? Format::json : Format::text; }

void Table::row(const ordered_json& row) {
  std::vector<std::string> keys, values;
  for (auto& [key, value] : row.items()) {
    keys.push_back(key);
    values.push_back(field(value));
  }
  const bool first = keys_.empty();
  if (first) keys_ = keys;
  if (keys != keys_) throw std::logic_error("a table's rows differ in their keys: " + join(keys, " "));
  auto sink = open_sink("-");
  if (format_ == Format::json) {
    sink->write(row.dump(-1, ' ', false, ordered_json::error_handler_t::replace) + "\n");
  } else {
    if (first) sink->write(join(keys, "\t") + "\n");
    sink->write(join(values, "\t") + "\n");
  }
  sink->close();
}

}  // namespace mh
