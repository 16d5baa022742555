#include "text/pipeline/added_token_matcher.h"

#include <algorithm>

#include "base/unicode.h"
#include "text/pipeline/unicode16.h"

namespace mh::text {

namespace {

size_t last_character(std::string_view text) {
  size_t begin = text.size() - 1;
  while (is_continuation_byte(text[begin])) --begin;
  return begin;
}

bool ends_with_word(std::string_view text) {
  return !text.empty() && rust_word_characters().contains(decode_utf8(text.data() + last_character(text)).c);
}
bool starts_with_word(std::string_view text) {
  return !text.empty() && rust_word_characters().contains(decode_utf8(text.data()).c);
}

// Returns the start of the white space at the end of `text`.
size_t trailing_space_begin(std::string_view text) {
  while (!text.empty()) {
    const size_t begin = last_character(text);
    if (!white_space_characters().contains(decode_utf8(text.data() + begin).c)) break;
    text = text.substr(0, begin);
  }
  return text.size();
}

// Returns the length of the white space at the start of `text`.
size_t leading_space_size(std::string_view text) {
  size_t size = 0;
  while (size < text.size()) {
    const DecodedCharacter character = decode_utf8(text.data() + size);
    if (!white_space_characters().contains(character.c)) break;
    size += character.num_bytes;
  }
  return size;
}

}  // namespace

void AddedTokenMatcher::find(std::string_view text, std::vector<Part>& parts) const {
  parts.clear();
  size_t covered_end = 0;  // end of the last part
  for (size_t begin = 0; !empty() && begin < text.size();) {
    if (!patterns_.has_first_byte(text[begin])) {
      ++begin;
      continue;
    }
    int32_t index = -1;
    size_t match_end = begin;
    patterns_.for_each_prefix(text.substr(begin), [&](size_t length, int32_t value) {
      if (begin + length == match_end) return;  // an equal pattern
      index = value;
      match_end = begin + length;
    });
    if (index < 0) {
      ++begin;
      continue;
    }
    const Token& token = tokens_[static_cast<size_t>(index)];
    size_t part_begin = begin, part_end = match_end;
    begin = match_end;
    if (token.special) continue;
    if (token.single_word && (ends_with_word(text.substr(0, part_begin)) || starts_with_word(text.substr(part_end))))
      continue;
    if (token.lstrip) part_begin = std::max(trailing_space_begin(text.substr(0, part_begin)), covered_end);
    if (token.rstrip) part_end += leading_space_size(text.substr(part_end));
    if (covered_end < part_begin) parts.push_back({covered_end, part_begin, -1});
    parts.push_back({part_begin, part_end, token.id});
    covered_end = part_end;
  }
  if (covered_end < text.size()) parts.push_back({covered_end, text.size(), -1});
}

}  // namespace mh::text
