#include "base/json.h"

#include <algorithm>
#include <set>
#include <vector>

#include "base/error.h"
#include "base/json_types.h"
#include "base/text.h"

namespace mh {

int json_depth(std::string_view text) {
  int depth = 0, max_depth = 0;
  bool is_in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (is_in_string && c == '\\') ++i;
    else if (c == '"') is_in_string = !is_in_string;
    else if (is_in_string) continue;
    else if (c == '[' || c == '{') max_depth = std::max(max_depth, ++depth);
    else if (c == ']' || c == '}') --depth;
  }
  return max_depth;
}

namespace {

// Decodes the escapes of a JSON string. `string_body`: the text between the quotation marks, which is returned
// unchanged if an escape is invalid.
std::string unescaped_json(std::string_view string_body) {
  if (string_body.find('\\') == string_body.npos) return std::string(string_body);
  const auto value = nlohmann::json::parse(str('"', string_body, '"'), nullptr, false);
  return value.is_string() ? value.get<std::string>() : std::string(string_body);
}

// Returns the index of the quotation mark that ends the string whose first quotation mark is `text[begin]`, or
// text.size() if there is none.
size_t end_of_json_string(std::string_view text, size_t begin) {
  size_t i = begin + 1;
  while (i < text.size() && text[i] != '"') i += text[i] == '\\' ? 2 : 1;
  return std::min(i, text.size());
}

}  // namespace

std::string json_error_text(std::string_view message) {
  const size_t end = message.find("] ");
  return str("the JSON error: ",
             message.starts_with("[json.") && end != message.npos ? message.substr(end + 2) : message);
}

void require_sound_json(std::string_view text, const std::string& name, const std::string& advice) {
  const auto refuse = [&](size_t offset, const std::string& expected, const std::string& found) {
    refuse_input(str(name, ": byte ", offset), expected, found, advice);
  };
  if (const size_t offset = text.find('\0'); offset != text.npos)
    refuse(offset, "JSON without NUL bytes", "a NUL byte");
  if (const int depth = json_depth(text); depth > kMaxJsonDepth)
    refuse_input(name, str("JSON with at most ", kMaxJsonDepth, " nested levels"), str(depth, " nested levels"),
                 advice);
  struct Level {
    bool is_object, expects_key;  // `expects_key`: the next string is a key
    std::set<std::string> keys;
  };
  std::vector<Level> levels;
  size_t num_allocated_values = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '"' || c == '{' || c == '[') ++num_allocated_values;
    if (c == '"') {
      const size_t begin = i + 1;
      i = end_of_json_string(text, i);
      if (levels.empty() || !levels.back().expects_key) continue;
      levels.back().expects_key = false;
      const std::string key = unescaped_json(text.substr(begin, i - begin));
      if (!levels.back().keys.insert(key).second)
        refuse(begin - 1, "unique keys in a JSON object", str("the key '", key, "' twice"));
    } else if (c == '{' || c == '[') {
      levels.push_back({c == '{', c == '{', {}});
    } else if (levels.empty()) {
      continue;
    } else if (c == '}' || c == ']') {
      levels.pop_back();
    } else if (c == ',') {
      levels.back().expects_key = levels.back().is_object;
    }
  }
  if (const size_t limit = max_json_allocated_values(text.size()); num_allocated_values > limit)
    refuse_input(name,
                 str("JSON of ", text.size(), " bytes with at most ", limit,
                     " strings, objects and arrays, since each takes memory"),
                 str(num_allocated_values, " strings, objects and arrays"), advice);
}

}  // namespace mh
