#include "io/json_config.h"

#include <algorithm>
#include <filesystem>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/text.h"

namespace mh::io {

namespace {

constexpr const char* kCopyFile = "copy the file from the source of the model";  // advice in errors

const char* kind_of(const Json& value) {
  if (value.is_boolean()) return "true or false";
  if (value.is_number_integer()) return "a whole number";
  if (value.is_number()) return "a number";
  if (value.is_string()) return "text";
  return value.is_array() ? "a list" : "an object";
}

bool has_type_of(const Json& value, const Json& default_value) {
  if (default_value.is_null()) return true;
  if (default_value.is_number_float()) return value.is_number();
  return std::string_view(kind_of(value)) == kind_of(default_value);
}

}  // namespace

std::string json_excerpt(const Json& value) {
  constexpr size_t kMaxElements = 16, kMaxCharacters = 200;
  const auto is_short = [](const Json& x) {
    return !x.is_structured() && (!x.is_string() || x.get_ref<const std::string&>().size() <= kMaxCharacters);
  };
  const bool is_shown = value.is_structured()
                            ? value.size() <= kMaxElements && std::all_of(value.begin(), value.end(), is_short)
                            : is_short(value);
  if (is_shown) return value.dump();
  if (value.is_array()) return str("a list of ", count_of(value.size(), "element"));
  if (value.is_object()) return str("an object of ", count_of(value.size(), "key"));
  return str("a text of ", count_of(value.get_ref<const std::string&>().size(), "byte"));
}

Json parse_json_object(const std::string& text, const std::string& path) {
  return mh::parse_json_object<Json>(text, path, "copy the folder again");
}

JsonConfig::JsonConfig(const std::string& text, const std::string& path)
    : path_(path), values_(parse_json_object(text, path)) {}

JsonConfig JsonConfig::read_if_exists(const std::string& path) {
  return {std::filesystem::exists(path) ? read_regular_file(path) : "{}", path};
}

Json JsonConfig::value(const std::string& key, const Json& default_value) const {
  accessed_keys_.insert(key);
  const auto entry = values_.find(key);
  if (entry == values_.end() || entry->is_null()) return default_value;
  if (!has_type_of(*entry, default_value))
    refuse_input(path_ + ": " + key, kind_of(default_value), json_excerpt(*entry), kCopyFile);
  return *entry;
}

std::optional<std::vector<double>> JsonConfig::numbers(const std::string& key) const {
  const Json list = value(key, nullptr);
  if (list.is_null()) return std::nullopt;
  if (!list.is_array() || !std::all_of(list.begin(), list.end(), [](const Json& number) { return number.is_number(); }))
    refuse_input(path_ + ": " + key, "a list of numbers", json_excerpt(list), kCopyFile);
  return list.get<std::vector<double>>();
}

std::optional<std::vector<std::string>> JsonConfig::texts(const std::string& key) const {
  const Json list = value(key, nullptr);
  if (list.is_null()) return std::nullopt;
  if (!list.is_array() || !std::all_of(list.begin(), list.end(), [](const Json& text) { return text.is_string(); }))
    refuse_input(path_ + ": " + key, "a list of texts", json_excerpt(list), kCopyFile);
  return list.get<std::vector<std::string>>();
}

std::optional<JsonConfig> JsonConfig::object(const std::string& key) const {
  Json values = value(key, nullptr);
  if (values.is_null()) return std::nullopt;
  if (!values.is_object()) refuse_input(path_ + ": " + key, "an object", json_excerpt(values), kCopyFile);
  JsonConfig object("{}", path_ + ": " + key);
  object.values_ = std::move(values);
  return object;
}

JsonConfig JsonConfig::only(const std::string& key) const {
  JsonConfig copy("{}", path_);
  if (const auto entry = values_.find(key); entry != values_.end()) copy.values_[key] = *entry;
  return copy;
}

bool JsonConfig::has(const std::string& key) const {
  accessed_keys_.insert(key);
  return values_.contains(key);
}

std::vector<std::string> JsonConfig::keys() const {
  std::vector<std::string> names;
  for (const auto& [key, value] : values_.items()) names.push_back(key);
  return names;
}

void JsonConfig::require(const std::string& key, const Json& default_value, const std::vector<Json>& allowed_values,
                         const std::string& advice) const {
  const Json actual_value = value(key, default_value);
  if (std::find(allowed_values.begin(), allowed_values.end(), actual_value) != allowed_values.end()) return;
  std::vector<std::string> texts;
  texts.reserve(allowed_values.size());
  for (const Json& allowed_value : allowed_values) texts.push_back(allowed_value.dump());
  refuse_input(path_ + ": " + key, join(texts, " or "), json_excerpt(actual_value), advice);
}

std::vector<std::string> JsonConfig::unread_keys() const {
  std::vector<std::string> keys;
  for (const auto& [key, value] : values_.items())
    if (accessed_keys_.count(key) == 0) keys.push_back(key);
  return keys;
}

}  // namespace mh::io
