#include "base/table.h"

#include <nlohmann/json.hpp>
#include <stdexcept>

#include "base/file.h"
#include "base/text.h"

namespace mh {

using nlohmann::ordered_json;

Table::Format Table::format_named(const std::string& name) { return name == "json" ? Format::json : Format::text; }

void Table::row(const ordered_json& row) {
  std::vector<std::string> keys, values;
  for (auto& [key, value] : row.items()) {
    keys.push_back(key);
    const bool no_number = value.is_number_float() && !(value.get<double>() == value.get<double>());
    // An empty field would shift those behind it, for readers that split at blanks.
    std::string text = no_number ? "nan" : value.is_string() ? value.get<std::string>() : value.dump();
    values.push_back(text.empty() ? "-" : text);
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
