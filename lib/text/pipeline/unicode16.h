// Sets of characters by the properties of Unicode 16.0, which the regular expressions and the character classes of
// Hugging Face tokenizers 0.22 use. Categories come from utf8proc (Unicode 15.0) and a list of the differences, which
// was made by querying tokenizers 0.22.1 for every character.
#pragma once

#include <array>
#include <bitset>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "text/code_point_ranges.h"

namespace mh::text {

// A set of characters.
class CharacterSet {
 public:
  CharacterSet() = default;
  // `ranges` may overlap and may be in any order.
  explicit CharacterSet(std::vector<CodePointRange> ranges);
  CharacterSet complement() const;
  CharacterSet united(const CharacterSet& other) const;
  bool contains(char32_t c) const;
  // The members as ascending ranges, neither adjacent nor overlapping.
  std::span<const CodePointRange> ranges() const { return ranges_; }
  // The first bytes of the members in UTF-8.
  std::bitset<256> first_bytes() const;
  bool operator==(const CharacterSet& other) const { return ranges_ == other.ranges_; }

 private:
  std::vector<CodePointRange> ranges_;
};

// A set of characters for fast look-ups: a table of 8 KiB for U+0000 to U+FFFF, and binary search above.
class CharacterTable {
 public:
  explicit CharacterTable(const CharacterSet& set);
  bool contains(char32_t c) const { return c < 0x10000 ? (bits_[c >> 6] >> (c & 63) & 1) != 0 : set_.contains(c); }
  const CharacterSet& set() const { return set_; }

 private:
  CharacterSet set_;
  std::array<uint64_t, 1024> bits_{};  // a bit for each character below U+10000
};

// Returns the characters of a general category such as "Lu", or of a group such as "L". Returns an empty set if there
// is no category of this name.
CharacterSet characters_of_category(std::string_view name);
// Returns \s of Oniguruma and of Rust: the property White_Space, which equals Rust's char::is_whitespace().
const CharacterTable& white_space_characters();
// Returns \w of Oniguruma, and \w of the crate regex, by which `Whitespace` and `single_word` define words.
const CharacterTable& onig_word_characters();
const CharacterTable& rust_word_characters();

// A character of valid UTF-8 text and its length in bytes.
struct DecodedCharacter {
  char32_t c;
  uint32_t num_bytes;
};
// Returns the character at `p`, which valid UTF-8 text contains as a whole.
inline DecodedCharacter decode_utf8(const char* p) {
  const auto byte = [p](int i) { return static_cast<char32_t>(static_cast<unsigned char>(p[i])); };
  const char32_t first = byte(0);
  if (first < 0x80) return {first, 1};
  if (first < 0xE0) return {(first & 0x1F) << 6 | (byte(1) & 0x3F), 2};
  if (first < 0xF0) return {(first & 0x0F) << 12 | (byte(1) & 0x3F) << 6 | (byte(2) & 0x3F), 3};
  return {(first & 0x07) << 18 | (byte(1) & 0x3F) << 12 | (byte(2) & 0x3F) << 6 | (byte(3) & 0x3F), 4};
}

}  // namespace mh::text
