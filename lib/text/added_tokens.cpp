#include "text/added_tokens.h"

#include <algorithm>
#include <charconv>
#include <iterator>

namespace mh::text {

namespace {

bool is_attribute(std::string_view word) {
  const auto is_listed = [&](const auto& list) {
    return std::find(std::begin(list), std::end(list), word) != std::end(list);
  };
  return word == kAppended || word == kMoreSpecialTokens || is_listed(kTokenFlags) || is_listed(kTokenRoles);
}

}  // namespace

int64_t token_of_role(const AddedTokens& tokens, std::string_view role) {
  for (const auto& [number, attributes] : tokens)
    if (attributes.count(std::string(role)) > 0) return number;
  return -1;
}

void write_added_tokens(const AddedTokens& tokens, std::string& text) {
  for (const auto& [number, attributes] : tokens) {
    text += std::to_string(number);
    for (const std::string& attribute : attributes) text += " " + attribute;
    text += '\n';
  }
}

bool parse_added_token(std::string_view line, uint64_t entries, AddedTokens& tokens) {
  int64_t number = -1;
  const auto parsed = std::from_chars(line.data(), line.data() + line.size(), number);
  if (parsed.ec != std::errc() || number < 0 || static_cast<uint64_t>(number) >= entries) return false;
  if (!tokens.empty() && tokens.rbegin()->first >= number) return false;
  line.remove_prefix(static_cast<size_t>(parsed.ptr - line.data()));
  std::set<std::string>& attributes = tokens[number];
  while (!line.empty()) {
    if (line.front() != ' ') return false;
    line.remove_prefix(1);
    const std::string_view word = line.substr(0, line.find(' '));
    if (!is_attribute(word) || !attributes.emplace(word).second) return false;
    line.remove_prefix(word.size());
  }
  return true;
}

}  // namespace mh::text
