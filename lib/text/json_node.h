// A value of a JSON file with its path, for readers that refuse settings by name.
#pragma once

#include <algorithm>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/json_types.h"
#include "base/text.h"

namespace mh::text {

// Maximum number of components of a part of the pipeline. Bounds the memory that a damaged file takes, for nodes and
// for the tables of regular expressions.
constexpr size_t kMaxStages = 32;
// Advice of errors about types and settings that are not supported.
constexpr const char* kUseSupportedType = "use a tokenizer with the components that mh-vocab(5) lists";

// Returns the value as JSON text of at most 80 characters, for messages.
inline std::string abbreviate(const nlohmann::json& value) {
  return shorten(value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace), 80);
}

// A node of a JSON file, with its JSON path for messages. The JSON document must outlive the node.
struct JsonNode {
  using Json = nlohmann::json;  // not ordered_json, whose look-ups among 100,000 keys are slow

  const Json* value;
  std::string path;

  // Returns the member `key`; a node of null if there is no such member.
  JsonNode at(const std::string& key) const {
    static const Json null;
    const auto member = value->is_object() ? value->find(key) : value->end();
    const bool is_root = path.ends_with(": ");  // the path of the root is the name of the file and ": "
    return {value->is_object() && member != value->end() ? &*member : &null, path + (is_root ? "" : ".") + key};
  }
  bool empty() const { return value->is_null(); }
  std::string type() const {
    const Json& type = *at("type").value;
    return type.is_string() ? type.get<std::string>() : "";
  }
  [[noreturn]] void refuse(const std::string& expected, const std::string& found,
                           const std::string& advice = "copy the folder again") const {
    refuse_input(path, expected, found, advice);
  }
  void require(const std::string& key, std::initializer_list<Json> allowed_values, const std::string& advice) const {
    const JsonNode node = at(key);
    if (std::find(allowed_values.begin(), allowed_values.end(), *node.value) != allowed_values.end()) return;
    std::vector<std::string> texts;
    for (const Json& allowed_value : allowed_values) texts.push_back(allowed_value.dump());
    node.refuse(join(texts, " or "), abbreviate(*node.value), advice);
  }
  void require_type(std::initializer_list<const char*> allowed_types, const std::string& advice) const {
    const std::string name = type();
    if (std::find(allowed_types.begin(), allowed_types.end(), name) != allowed_types.end()) return;
    refuse(join({allowed_types.begin(), allowed_types.end()}, " or "), name.empty() ? abbreviate(*value) : name,
           advice);
  }
  // Calls visit(JsonNode) for each element of an array, in order. Only one node exists at a time, since the nodes of a
  // long list would take more memory than its values. Throws Error(input) for another value.
  template <class Visit>
  void for_each_element(const Visit& visit) const {
    if (!value->is_array()) refuse("a list", abbreviate(*value));
    for (size_t i = 0; i < value->size(); ++i) visit(JsonNode{&(*value)[i], str(path, "[", i, "]")});
  }
  // Returns the components of a pipeline stage in order: none for null, the (nested) entries of the array `list_key`
  // for the type Sequence, otherwise only this node. Throws Error(input) for more than kMaxStages components.
  std::vector<JsonNode> stages(const char* list_key) const {
    std::vector<JsonNode> result;
    add_stages(list_key, *this, result);
    return result;
  }
  // Return the member `key`, or the default if the member is missing or null. Throw Error(input) for another type.
  bool flag(const std::string& key, bool default_value) const {
    const JsonNode node = at(key);
    if (node.empty()) return default_value;
    if (!node.value->is_boolean()) node.refuse("true or false", abbreviate(*node.value));
    return node.value->get<bool>();
  }
  std::string text(const std::string& key, const std::string& default_value) const {
    const JsonNode node = at(key);
    if (node.empty()) return default_value;
    if (!node.value->is_string()) node.refuse("a string", abbreviate(*node.value));
    return node.value->get<std::string>();
  }
  // Returns the integer `key` in [0, 2^31), or the default if it is missing or null.
  int64_t count(const std::string& key, int64_t default_value) const {
    const JsonNode node = at(key);
    if (node.empty()) return default_value;
    if (!node.value->is_number_unsigned() || node.value->get<uint64_t>() > INT32_MAX)
      node.refuse("an integer from 0 to 2147483647", abbreviate(*node.value));
    return node.value->get<int64_t>();
  }

 private:
  // Appends the components of stages(); `root` is the node of the whole part.
  void add_stages(const char* list_key, const JsonNode& root, std::vector<JsonNode>& result) const {
    if (empty()) return;
    if (type() == "Sequence")
      return at(list_key).for_each_element(
          [&](const JsonNode& element) { element.add_stages(list_key, root, result); });
    if (result.size() == kMaxStages)
      root.refuse(str("at most ", kMaxStages, " components"), "more components", kUseSupportedType);
    result.push_back(*this);
  }
};

}  // namespace mh::text
