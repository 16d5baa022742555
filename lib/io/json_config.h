// A JSON file of settings, such as config.json of Hugging Face. Missing values have the defaults that the caller
// states, as in transformers; types of values are checked, and unread keys are listed.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "base/json_types.h"

namespace mh::io {

using Json = nlohmann::ordered_json;

// Parses a JSON object. `path`: name of the file for messages. Throws Error(input) for other text and for the faults
// that require_sound_json() finds.
Json parse_json_object(const std::string& text, const std::string& path);

class JsonConfig {
 public:
  // Parses `text`, a JSON object; throws as parse_json_object() does. `path`: name of the file for messages.
  JsonConfig(const std::string& text, const std::string& path);
  // Reads a file; a missing file counts as an empty object.
  static JsonConfig read_if_exists(const std::string& path);
  const std::string& path() const { return path_; }
  bool empty() const { return values_.empty(); }

  // Returns the value of a key, or `default_value` if the key is missing or null. Throws Error(input) for a value whose
  // type differs from that of `default_value`; a null default accepts every type, and a floating-point default accepts
  // integers.
  Json value(const std::string& key, const Json& default_value) const;
  // Throws Error(input), with `advice`, unless the value of the key is one of `allowed_values`. A missing or null key
  // has the value `default_value`.
  void require(const std::string& key, const Json& default_value, const std::vector<Json>& allowed_values,
               const std::string& advice) const;
  // Returns the keys that neither value() nor require() has read.
  std::vector<std::string> unread_keys() const;

 private:
  std::string path_;
  Json values_;
  mutable std::set<std::string> accessed_keys_;
};

}  // namespace mh::io
