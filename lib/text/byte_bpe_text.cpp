// Splits text into words by GPT-2's regular expression, and maps bytes to the characters of GPT-2's vocabulary files.
#include <utf8proc.h>

#include <algorithm>
#include <iterator>

#include "base/unicode.h"
#include "text/byte_bpe.h"

namespace mh::text {

namespace {

enum class Class : uint8_t { space, letter, number, other };

struct Range {
  char32_t first, last;
  Class character_class;
};
// Letters and numbers added in Unicode 15.1 and 16.0, which is_letter() and is_number() do not know.
constexpr Range kAddedSinceUnicode15_1[] = {
    {0x1C89, 0x1C8A, Class::letter},   {0xA7CB, 0xA7CD, Class::letter},   {0xA7DA, 0xA7DC, Class::letter},
    {0x105C0, 0x105F3, Class::letter}, {0x10D40, 0x10D49, Class::number}, {0x10D4A, 0x10D65, Class::letter},
    {0x10D6F, 0x10D85, Class::letter}, {0x10EC2, 0x10EC4, Class::letter}, {0x11380, 0x11389, Class::letter},
    {0x1138B, 0x1138B, Class::letter}, {0x1138E, 0x1138E, Class::letter}, {0x11390, 0x113B5, Class::letter},
    {0x113B7, 0x113B7, Class::letter}, {0x113D1, 0x113D1, Class::letter}, {0x113D3, 0x113D3, Class::letter},
    {0x116D0, 0x116E3, Class::number}, {0x11BC0, 0x11BE0, Class::letter}, {0x11BF0, 0x11BF9, Class::number},
    {0x13460, 0x143FA, Class::letter}, {0x16100, 0x1611D, Class::letter}, {0x16130, 0x16139, Class::number},
    {0x16D40, 0x16D6C, Class::letter}, {0x16D70, 0x16D79, Class::number}, {0x18CFF, 0x18CFF, Class::letter},
    {0x1CCF0, 0x1CCF9, Class::number}, {0x1E5D0, 0x1E5ED, Class::letter}, {0x1E5F0, 0x1E5F0, Class::letter},
    {0x1E5F1, 0x1E5FA, Class::number}, {0x2EBF0, 0x2EE5D, Class::letter}};

constexpr auto kAscii = [] {
  std::array<Class, 128> classes{};
  for (int c = 0; c < 128; ++c) {
    const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'), number = c >= '0' && c <= '9';
    const bool space = c == ' ' || (c >= '\t' && c <= '\r');
    classes[static_cast<size_t>(c)] = letter   ? Class::letter
                                      : number ? Class::number
                                      : space  ? Class::space
                                               : Class::other;
  }
  return classes;
}();

Class class_of(char32_t c) {
  if (is_letter(c)) return Class::letter;
  if (is_number(c)) return Class::number;
  if (is_space(c)) return Class::space;  // equals \s of the regular expression outside ASCII
  const Range* r = std::lower_bound(std::begin(kAddedSinceUnicode15_1), std::end(kAddedSinceUnicode15_1), c,
                                    [](const Range& a, char32_t b) { return a.last < b; });
  return r != std::end(kAddedSinceUnicode15_1) && r->first <= c ? r->character_class : Class::other;
}

struct Character {
  Class character_class;
  size_t bytes;
};

Character character_at(std::string_view text, size_t offset) {
  const auto first = static_cast<unsigned char>(text[offset]);
  if (first < 0x80) return {kAscii[first], 1};
  utf8proc_int32_t c = 0;
  const utf8proc_ssize_t size = utf8proc_iterate(reinterpret_cast<const utf8proc_uint8_t*>(text.data()) + offset,
                                                 static_cast<utf8proc_ssize_t>(text.size() - offset), &c);
  return {class_of(static_cast<char32_t>(c)), static_cast<size_t>(std::max<utf8proc_ssize_t>(1, size))};
}

bool is_continuation_byte(char c) { return (static_cast<unsigned char>(c) & 0xC0) == 0x80; }

// Returns the offset of the first character from offset `offset` on that is not of class `character_class`, or the size
// of `text`.
size_t end_of_class(std::string_view text, size_t offset, Class character_class) {
  while (offset < text.size()) {
    const Character character = character_at(text, offset);
    if (character.character_class != character_class) break;
    offset += character.bytes;
  }
  return offset;
}

// Returns the number of letters of the contraction with which `suffix`, the text after an apostrophe, starts; 0: none.
size_t contraction_length(std::string_view suffix) {
  for (std::string_view letters : {"s", "t", "re", "ve", "m", "ll", "d"})
    if (suffix.starts_with(letters)) return letters.size();
  return 0;
}

bool is_printed(int byte) { return (byte > 0x20 && byte < 0x7F) || (byte > 0xA0 && byte != 0xAD); }

constexpr char32_t kFirstLetter = 0x100;

const std::array<char32_t, 256> kLetters = [] {
  std::array<char32_t, 256> letters{};
  char32_t next_letter = kFirstLetter;
  for (int byte = 0; byte < 256; ++byte)
    letters[static_cast<size_t>(byte)] = is_printed(byte) ? static_cast<char32_t>(byte) : next_letter++;
  return letters;
}();

}  // namespace

size_t byte_bpe_word_end(std::string_view text, size_t begin) {
  if (text[begin] == '\'')
    if (const size_t letters = contraction_length(text.substr(begin + 1)); letters > 0) return begin + 1 + letters;
  const Character first = character_at(text, begin);
  const size_t next = begin + first.bytes;
  if (first.character_class != Class::space) return end_of_class(text, next, first.character_class);
  if (next == text.size()) return next;
  const Character second = character_at(text, next);
  if (second.character_class != Class::space)
    return text[begin] == ' ' ? end_of_class(text, next, second.character_class) : next;
  // The last of several white-space characters starts the next word.
  size_t end = end_of_class(text, next, Class::space);
  if (end == text.size()) return end;
  while (is_continuation_byte(text[--end])) continue;
  return end;
}

size_t ByteBpeTokenizer::find_split(std::string_view text) const {
  // Splits before a space that follows a non-space character: such a space starts a word, whatever text follows.
  for (size_t offset = text.rfind(' '); offset != text.npos && offset > 0; offset = text.rfind(' ', offset - 1)) {
    size_t previous = offset - 1;
    while (previous > 0 && is_continuation_byte(text[previous])) --previous;
    if (character_at(text, previous).character_class != Class::space) return offset;
  }
  return text.npos;
}

char32_t letter_of_byte(uint8_t byte) { return kLetters[byte]; }

int byte_of_letter(char32_t letter) {
  if (letter < kFirstLetter) return is_printed(static_cast<int>(letter)) ? static_cast<int>(letter) : -1;
  const auto found = std::find(kLetters.begin(), kLetters.end(), letter);
  return found == kLetters.end() ? -1 : static_cast<int>(found - kLetters.begin());
}

}  // namespace mh::text
