// Normalizers of tokenizer.json, which rewrite a text before it is split into words.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/json_node.h"
#include "text/pipeline/regex.h"

namespace mh::text {

class Normalizer {
 public:
  virtual ~Normalizer() = default;
  // Writes the normalised text to `out`, which is another string than `text`. Returns false, with an unspecified `out`,
  // if the text does not change.
  virtual bool apply(std::string_view text, std::string& out) const = 0;
};

using Normalizers = std::vector<std::unique_ptr<Normalizer>>;

// Returns the normalizers of the entry `normalizer` in order, and appends to `canonical`, a JSON array, the settings of
// each in one form: {"type": …} with all settings that affect the result. Throws Error(input) for a type or a setting
// that is not supported.
Normalizers parse_normalizers(const JsonNode& node, nlohmann::json& canonical);

// Applies the normalizers in order to `text`, with `buffers` as memory. Returns `text` itself or a view of a buffer.
std::string_view normalize(const Normalizers& normalizers, std::string_view text, std::string (&buffers)[2]);

// Returns `text` with each match of `regex` replaced by `replacement`; false, with an unspecified `out`, if none
// matches.
bool replace_matches(const Regex& regex, std::string_view text, std::string_view replacement, std::string& out);
// Returns the regular expression of a setting such as {"String": "a"} or {"Regex": "a+"}, and checks its form.
Regex parse_pattern(const JsonNode& node);

// Returns the text in which each byte is a character of GPT-2's table (character_of_byte()).
void append_byte_characters(std::string_view text, std::string& out);

}  // namespace mh::text
