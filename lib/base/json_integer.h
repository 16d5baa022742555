// Reads integers from the JSON of files. get<Int>() of the JSON library would drop a fraction, wrap a large integer,
// and convert a number outside the range of Int with undefined behaviour. The functions throw the type_error of the
// library for a value of the wrong type and for an integer outside the range.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/json_types.h"

namespace mh {

// Throws a type_error, which names the required type `type`, unless `has_type`.
template <class Json>
void require_json_type(bool has_type, const char* type, const Json& value) {
  if (has_type) return;
  const std::string found = value.is_number() ? value.dump() : value.type_name();
  throw Json::type_error::create(302, std::string("type must be ") + type + ", but is " + found, &value);
}

// Returns the integer in a JSON value.
template <class Int, class Json>
Int integer_of(const Json& value) {
  const bool is_in_range = value.is_number_unsigned()
                               ? std::in_range<Int>(value.template get<uint64_t>())
                               : value.is_number_integer() && std::in_range<Int>(value.template get<int64_t>());
  require_json_type(is_in_range, "an integer in range", value);
  return value.template get<Int>();
}

// Returns the integers in a JSON array.
template <class Int, class Json>
std::vector<Int> integers_of(const Json& array) {
  require_json_type(array.is_array(), "an array", array);
  std::vector<Int> integers;
  for (const Json& value : array) integers.push_back(integer_of<Int>(value));
  return integers;
}

// Returns the integers in a JSON object by key.
template <class Int, class Json>
std::map<std::string, Int> integers_by_key(const Json& object) {
  require_json_type(object.is_object(), "an object", object);
  std::map<std::string, Int> integers;
  for (const auto& [key, value] : object.items()) integers[key] = integer_of<Int>(value);
  return integers;
}

}  // namespace mh
