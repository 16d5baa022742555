// A JSON file of settings, such as config.json of Hugging Face. Missing values have the defaults that the caller
// states, as in transformers; types of values are checked, and unread keys are listed.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/json_types.h"

namespace mh::io {

using Json = nlohmann::ordered_json;

// Returns a value as text for messages: a scalar, or a short list or object, as JSON, and only the size of anything
// longer, since a damaged file may have a value of any size.
std::string json_excerpt(const Json& value);

// Parses a JSON object from a Hugging Face folder. `path`: name of the file for messages. Throws the errors of
// mh::parse_json_object().
Json parse_json_object(const std::string& text, const std::string& path);

class JsonConfig {
 public:
  // Parses `text`, a JSON object; throws as parse_json_object() does. `path`: name of the file for messages.
  JsonConfig(const std::string& text, const std::string& path);
  // Reads a file; a missing file counts as an empty object.
  static JsonConfig read_if_exists(const std::string& path);
  const std::string& path() const { return path_; }
  bool empty() const { return values_.empty(); }

  // Returns the value of a key, or `default_value` if the key is missing or null. Throws Error(input) if the
  // value and `default_value` have different types; a null default accepts every type, and a floating-point default
  // accepts integers.
  Json value(const std::string& key, const Json& default_value) const;
  // Returns the value of a key for which null is a value of its own, such as "no window" of sliding_window: nullopt if
  // the key is null, and `if_absent` if the file lacks the key. T: bool, int64_t, double or std::string. Throws
  // Error(input) for a value of another type; T = double accepts integers.
  template <class T>
  std::optional<T> nullable(const std::string& key, const std::optional<T>& if_absent) const {
    if (!has(key)) return if_absent;
    if (value(key, nullptr).is_null()) return std::nullopt;
    return value(key, T()).template get<T>();
  }
  // Returns the list of numbers with this key; nullopt if the key is missing or null. Throws Error(input) for another
  // value.
  std::optional<std::vector<double>> numbers(const std::string& key) const;
  // Returns the list of texts with this key; nullopt if the key is missing or null. Throws Error(input) for another
  // value.
  std::optional<std::vector<std::string>> texts(const std::string& key) const;
  // Returns the JSON object with this key as a file of settings of its own, with the path "config.json: key"; nullopt
  // if the key is missing or null. Throws Error(input) for another value.
  std::optional<JsonConfig> object(const std::string& key) const;
  // Returns a copy that has only this key, if the file has it. Reading the copy leaves the key of this file unread.
  JsonConfig only(const std::string& key) const;
  // Returns whether the file has the key, with a value or null. Marks the key as read.
  bool has(const std::string& key) const;
  // Returns the keys of the file in their order.
  std::vector<std::string> keys() const;
  // Throws Error(input), with `advice`, unless the value of the key is one of `allowed_values`. A missing or null key
  // has the value `default_value`.
  void require(const std::string& key, const Json& default_value, const std::vector<Json>& allowed_values,
               const std::string& advice) const;
  // Returns the keys that no function above, except keys(), has read.
  std::vector<std::string> unread_keys() const;

 private:
  std::string path_;
  Json values_;
  mutable std::set<std::string> accessed_keys_;
};

}  // namespace mh::io
