// A JSON file of settings, such as Hugging Face's config.json: values with the defaults of transformers, checked for
// their type, and the list of unread keys.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "base/json_types.h"

namespace mh::io {

using Json = nlohmann::ordered_json;

// Parses a JSON object. Throws Error(input) for other content, and for content nested too deeply.
Json parse_object(const std::string& text, const std::string& path);

class ConfigFile {
 public:
  // Throws Error(input) for content that is not a JSON object.
  ConfigFile(const std::string& text, const std::string& path);
  // Reads a file; a missing file counts as an empty object.
  static ConfigFile optional(const std::string& path);
  const std::string& path() const { return path_; }
  bool empty() const { return values_.empty(); }

  // Returns the value, or `default_value` if it is missing or null. Throws Error(input) for a value of another type
  // than `default_value`, unless that is null.
  Json value(const std::string& key, const Json& default_value) const;
  // Throws Error(input), with `why`, unless the value is one of `allowed`.
  void require(const std::string& key, const Json& default_value, const std::vector<Json>& allowed,
               const std::string& why) const;
  // Returns the keys that neither value() nor require() has read.
  std::vector<std::string> others() const;

 private:
  std::string path_;
  Json values_;
  mutable std::set<std::string> keys_;
};

}  // namespace mh::io
