// Writes options as columns of a table, with the names of the options.
#pragma once

#include <string>

#include "base/fields.h"
#include "base/json_types.h"

namespace mh {

template <class Options>
nlohmann::ordered_json option_columns(Options options) {
  struct Columns : Fields {
    nlohmann::ordered_json row = nlohmann::ordered_json::object();
    bool visit(const Field& field, std::string& /*text*/) override {
      row[field.key] = nlohmann::ordered_json::parse(field.text);  // these values have equal syntax in TOML and JSON
      return false;
    }
  } columns;
  options.describe(columns);
  return columns.row;
}

}  // namespace mh
