// Splits text into words by GPT-2's regular expression, and maps bytes to the characters of GPT-2's vocabulary files.
#include <utf8proc.h>

#include <algorithm>
#include <iterator>

#include "base/unicode.h"
#include "text/byte_bpe.h"

namespace mh::text {

namespace {

enum class CharacterClass : uint8_t { space, letter, number, other };

struct CharacterRange {
  char32_t first, last;
  CharacterClass character_class;
};
// Letters and numbers added in Unicode 15.1 and 16.0, which is_letter() and is_number() do not know.
constexpr CharacterRange kAddedSinceUnicode15_1[] = {
    {0x1C89, 0x1C8A, CharacterClass::letter},   {0xA7CB, 0xA7CD, CharacterClass::letter},
    {0xA7DA, 0xA7DC, CharacterClass::letter},   {0x105C0, 0x105F3, CharacterClass::letter},
    {0x10D40, 0x10D49, CharacterClass::number}, {0x10D4A, 0x10D65, CharacterClass::letter},
    {0x10D6F, 0x10D85, CharacterClass::letter}, {0x10EC2, 0x10EC4, CharacterClass::letter},
    {0x11380, 0x11389, CharacterClass::letter}, {0x1138B, 0x1138B, CharacterClass::letter},
    {0x1138E, 0x1138E, CharacterClass::letter}, {0x11390, 0x113B5, CharacterClass::letter},
    {0x113B7, 0x113B7, CharacterClass::letter}, {0x113D1, 0x113D1, CharacterClass::letter},
    {0x113D3, 0x113D3, CharacterClass::letter}, {0x116D0, 0x116E3, CharacterClass::number},
    {0x11BC0, 0x11BE0, CharacterClass::letter}, {0x11BF0, 0x11BF9, CharacterClass::number},
    {0x13460, 0x143FA, CharacterClass::letter}, {0x16100, 0x1611D, CharacterClass::letter},
    {0x16130, 0x16139, CharacterClass::number}, {0x16D40, 0x16D6C, CharacterClass::letter},
    {0x16D70, 0x16D79, CharacterClass::number}, {0x18CFF, 0x18CFF, CharacterClass::letter},
    {0x1CCF0, 0x1CCF9, CharacterClass::number}, {0x1E5D0, 0x1E5ED, CharacterClass::letter},
    {0x1E5F0, 0x1E5F0, CharacterClass::letter}, {0x1E5F1, 0x1E5FA, CharacterClass::number},
    {0x2EBF0, 0x2EE5D, CharacterClass::letter}};

constexpr auto kAsciiClasses = [] {
  std::array<CharacterClass, 128> classes{};
  for (int c = 0; c < 128; ++c) {
    const bool is_ascii_letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'), is_digit = c >= '0' && c <= '9';
    const bool is_white_space = c == ' ' || (c >= '\t' && c <= '\r');
    classes[static_cast<size_t>(c)] = is_ascii_letter  ? CharacterClass::letter
                                      : is_digit       ? CharacterClass::number
                                      : is_white_space ? CharacterClass::space
                                                       : CharacterClass::other;
  }
  return classes;
}();

CharacterClass class_of(char32_t c) {
  if (is_letter(c)) return CharacterClass::letter;
  if (is_number(c)) return CharacterClass::number;
  if (is_space(c)) return CharacterClass::space;  // equals \s for non-ASCII characters
  const CharacterRange* r = std::lower_bound(std::begin(kAddedSinceUnicode15_1), std::end(kAddedSinceUnicode15_1), c,
                                             [](const CharacterRange& a, char32_t b) { return a.last < b; });
  return r != std::end(kAddedSinceUnicode15_1) && r->first <= c ? r->character_class : CharacterClass::other;
}

struct Character {
  CharacterClass character_class;
  size_t num_bytes;
};

Character character_at(std::string_view text, size_t offset) {
  const auto first_byte = static_cast<unsigned char>(text[offset]);
  if (first_byte < 0x80) return {kAsciiClasses[first_byte], 1};
  utf8proc_int32_t c = 0;
  const utf8proc_ssize_t size = utf8proc_iterate(reinterpret_cast<const utf8proc_uint8_t*>(text.data()) + offset,
                                                 static_cast<utf8proc_ssize_t>(text.size() - offset), &c);
  return {class_of(static_cast<char32_t>(c)), static_cast<size_t>(std::max<utf8proc_ssize_t>(1, size))};
}

// Returns the offset of the first character at or after `offset` that is not of class `character_class`, or the size of
// `text`.
size_t end_of_class(std::string_view text, size_t offset, CharacterClass character_class) {
  while (offset < text.size()) {
    const Character character = character_at(text, offset);
    if (character.character_class != character_class) break;
    offset += character.num_bytes;
  }
  return offset;
}

// Returns the number of letters of the contraction with which `suffix`, the text after an apostrophe, starts; 0: none.
size_t contraction_length(std::string_view suffix) {
  for (std::string_view letters : {"s", "t", "re", "ve", "m", "ll", "d"})
    if (suffix.starts_with(letters)) return letters.size();
  return 0;
}

// Returns whether GPT-2's files represent a byte by the character of the same number.
bool is_printable(int byte) { return (byte > 0x20 && byte < 0x7F) || (byte > 0xA0 && byte != 0xAD); }

constexpr char32_t kFirstSubstitute = 0x100;  // character that represents the first byte that is not printable

const std::array<char32_t, 256> kCharacterOfByte = [] {
  std::array<char32_t, 256> characters{};
  char32_t next_substitute = kFirstSubstitute;
  for (int byte = 0; byte < 256; ++byte)
    characters[static_cast<size_t>(byte)] = is_printable(byte) ? static_cast<char32_t>(byte) : next_substitute++;
  return characters;
}();

}  // namespace

size_t byte_bpe_word_end(std::string_view text, size_t begin) {
  if (text[begin] == '\'')
    if (const size_t num_letters = contraction_length(text.substr(begin + 1)); num_letters > 0)
      return begin + 1 + num_letters;
  const Character first_character = character_at(text, begin);
  const size_t next = begin + first_character.num_bytes;
  if (first_character.character_class != CharacterClass::space)
    return end_of_class(text, next, first_character.character_class);
  if (next == text.size()) return next;
  const Character second_character = character_at(text, next);
  if (second_character.character_class != CharacterClass::space)
    return text[begin] == ' ' ? end_of_class(text, next, second_character.character_class) : next;
  // The last of several white-space characters starts the next word.
  size_t end = end_of_class(text, next, CharacterClass::space);
  if (end == text.size()) return end;
  while (is_continuation_byte(text[--end])) continue;
  return end;
}

size_t find_byte_bpe_split(std::string_view text) {
  constexpr std::string_view kSplitCharacters = " \n";
  for (size_t offset = text.find_last_of(kSplitCharacters); offset != text.npos && offset > 0;
       offset = text.find_last_of(kSplitCharacters, offset - 1)) {
    size_t previous = offset - 1;
    while (previous > 0 && is_continuation_byte(text[previous])) --previous;
    if (character_at(text, previous).character_class != CharacterClass::space) return offset;
  }
  return text.npos;
}

char32_t character_of_byte(uint8_t byte) { return kCharacterOfByte[byte]; }

int byte_of_character(char32_t character) {
  if (character < kFirstSubstitute) return is_printable(static_cast<int>(character)) ? static_cast<int>(character) : -1;
  const auto it = std::find(kCharacterOfByte.begin(), kCharacterOfByte.end(), character);
  return it == kCharacterOfByte.end() ? -1 : static_cast<int>(it - kCharacterOfByte.begin());
}

}  // namespace mh::text
