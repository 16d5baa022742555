// A JSON file of settings, such as Hugging Face's config.json: values with the defaults that transformers gives to what
// is left out, checked for their kind, and what nobody asked for.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "base/json_types.h"

namespace mh::io {

using Json = nlohmann::ordered_json;

// An object of a file's text. Error(input) for anything else, and for one nested deeper than a program should follow.
Json parse_object(const std::string& text, const std::string& path);

class ConfigFile {
 public:
  // Error(input) for what is no JSON object.
  ConfigFile(const std::string& text, const std::string& path);
  // Of a file that may be lacking, which is then an empty object.
  static ConfigFile optional(const std::string& path);
  const std::string& path() const { return path_; }
  bool empty() const { return values_.empty(); }

  // The value, or `otherwise` where it is left out or null. Error(input) for one of another kind than `otherwise`, if
  // that is not null itself.
  Json value(const std::string& key, const Json& otherwise) const;
  // Error(input), with `why`, unless it is one of these.
  void require(const std::string& key, const Json& otherwise, const std::vector<Json>& allowed,
               const std::string& why) const;
  // Keys that neither has been asked about.
  std::vector<std::string> others() const;

 private:
  std::string path_;
  Json values_;
  mutable std::set<std::string> seen_;
};

}  // namespace mh::io
