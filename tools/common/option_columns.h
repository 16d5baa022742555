// Converts structs of options, which list their fields in describe(), to table columns.
#pragma once

#include <string>

#include "base/fields.h"
#include "base/json_types.h"

namespace mh {

// Returns the values of `options` as columns that are named by the keys of the options.
template <class Options>
nlohmann::ordered_json option_columns(Options options) {
  struct Columns : Fields {
    nlohmann::ordered_json row = nlohmann::ordered_json::object();
    bool visit(const Field& field, std::string& /*text*/) override {
      // Numbers, booleans and quoted strings have the same syntax in TOML and JSON.
      row[field.key] = nlohmann::ordered_json::parse(field.text);
      return false;
    }
  } columns;
  options.describe(columns);
  return columns.row;
}

}  // namespace mh
