#include "base/json.h"

#include <algorithm>
#include <regex>
#include <set>
#include <vector>

#include "base/error.h"
#include "base/json_types.h"
#include "base/text.h"
#include "base/unicode.h"

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

// Stops the parser at the first fault of a text that is not JSON, and stores the fault.
struct FaultFinder : nlohmann::json_sax<nlohmann::json> {
  size_t num_bytes_read = 0;  // up to and including the byte at which the parser stopped, and the end of the text
  std::string message;        // message of the parser's exception

  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t) override { return true; }
  bool number_unsigned(number_unsigned_t) override { return true; }
  bool number_float(number_float_t, const string_t&) override { return true; }
  bool string(string_t&) override { return true; }
  bool binary(binary_t&) override { return true; }
  bool start_object(size_t) override { return true; }
  bool key(string_t&) override { return true; }
  bool end_object() override { return true; }
  bool start_array(size_t) override { return true; }
  bool end_array() override { return true; }
  bool parse_error(size_t position, const std::string&, const nlohmann::json::exception& error) override {
    num_bytes_read = position;
    message = error.what();
    return false;
  }
};

// Returns the fault in the message of the parser, such as "a syntax error (unexpected '}')" for
// "[json.exception.parse_error.101] parse error at line 1, column 9: syntax error while parsing object key - unexpected
// '}'; expected string literal".
std::string fault_of(const std::string& message) {
  if (message.find("number overflow") != std::string::npos) return "a number beyond the range of fp64";
  const size_t dash = message.find(" - "), begin = dash != std::string::npos ? dash + 3 : 0;
  return str("a syntax error (", message.substr(begin, message.find(';', begin) - begin), ")");
}

// Returns the start of the text from up to 20 bytes before the offset on: whole UTF-8 characters up to the first
// invalid byte, with a blank for white space.
std::string text_near(std::string_view text, size_t offset) {
  constexpr size_t kBytesBefore = 20, kMaxBytes = 200;
  size_t begin = offset - std::min(offset, kBytesBefore);
  while (begin < offset && is_continuation_byte(text[begin])) ++begin;
  text = text.substr(begin, kMaxBytes);
  std::string near_text;
  for (const char c : text.substr(0, find_invalid_utf8(text))) {
    const bool is_space = c == ' ' || c == '\n' || c == '\r' || c == '\t';
    if (!is_space || !near_text.ends_with(' ')) near_text += is_space ? ' ' : c;
  }
  return trim(near_text);
}

// Throws the error of parse_json() for text that is not JSON.
[[noreturn]] void refuse_json(std::string_view text, const std::string& name, const std::string& expected,
                              const std::string& advice) {
  FaultFinder finder;
  nlohmann::json::sax_parse(text, &finder);
  if (finder.num_bytes_read > text.size())
    refuse_input(str(name, ": byte ", text.size()), "the rest of " + expected, "the end of the text", advice);
  const size_t offset = std::max<size_t>(finder.num_bytes_read, 1) - 1;
  refuse_input(str(name, ": byte ", offset), expected,
               str(fault_of(finder.message), " near ", quote_start(text_near(text, offset))), advice);
}

}  // namespace

std::string json_error_text(std::string_view message) {
  if (const size_t end = message.find("] "); message.starts_with("[json.") && end != message.npos)
    message.remove_prefix(end + 2);
  const std::string text(message);
  std::smatch match;
  if (std::regex_match(text, match, std::regex("key ('.*') not found"))) return str("no key ", match[1].str());
  if (std::regex_match(text, match, std::regex(R"(cannot use .* with (\w+))"))) return str("a JSON ", match[1].str());
  if (std::regex_match(text, match, std::regex(R"(type must be (\w+), but is (\w+))")))
    return str("a JSON ", match[2].str(), " instead of a JSON ", match[1].str());
  return str("the JSON error: ", text);
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

template <class Json>
Json parse_json(std::string_view text, const std::string& name, const std::string& expected,
                const std::string& advice) {
  require_sound_json(text, name, advice);
  Json value = Json::parse(text, nullptr, false);
  if (value.is_discarded()) refuse_json(text, name, expected, advice);
  return value;
}

template <class Json>
Json parse_json_object(std::string_view text, const std::string& name, const std::string& advice) {
  constexpr const char* kExpected = "a JSON object";
  Json object = parse_json<Json>(text, name, kExpected, advice);
  if (!object.is_object()) refuse_input(name, kExpected, str("a JSON ", object.type_name()), advice);
  return object;
}

template nlohmann::json parse_json(std::string_view, const std::string&, const std::string&, const std::string&);
template nlohmann::ordered_json parse_json(std::string_view, const std::string&, const std::string&,
                                           const std::string&);
template nlohmann::json parse_json_object(std::string_view, const std::string&, const std::string&);
template nlohmann::ordered_json parse_json_object(std::string_view, const std::string&, const std::string&);

}  // namespace mh
