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
  return word == kAppended || word == kAdditionalSpecialTokens || is_listed(kTokenFlags) || is_listed(kTokenRoles);
}

}  // namespace

int64_t token_id_of_role(const AddedTokens& tokens, std::string_view role) {
  for (const auto& [id, attributes] : tokens)
    if (attributes.count(std::string(role)) > 0) return id;
  return -1;
}

void append_added_tokens(const AddedTokens& tokens, std::string& text) {
  for (const auto& [id, attributes] : tokens) {
    text += std::to_string(id);
    for (const std::string& attribute : attributes) text += " " + attribute;
    text += '\n';
  }
}

bool parse_added_token(std::string_view line, uint64_t num_entries, AddedTokens& tokens) {
  int64_t id = -1;
  const auto parse_result = std::from_chars(line.data(), line.data() + line.size(), id);
  if (parse_result.ec != std::errc() || id < 0 || static_cast<uint64_t>(id) >= num_entries) return false;
  if (!tokens.empty() && tokens.rbegin()->first >= id) return false;
  line.remove_prefix(static_cast<size_t>(parse_result.ptr - line.data()));
  std::set<std::string>& attributes = tokens[id];
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
