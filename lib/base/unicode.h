// Character classes and lower case as in Python (str.lower, str.isspace, and the categories \p{…} of its regex
// package), so that scores of text equal the scores of Python programs. Categories and case follow the Unicode version
// of utf8proc: 15.0 in Debian 12.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace mh {

// Returns the code points of a text, which must be valid UTF-8 (see find_invalid_utf8()).
std::u32string code_points(std::string_view utf8);
void append_utf8(char32_t c, std::string& out);
// Returns whether a byte of UTF-8 text is the second, third or fourth byte of a character.
inline bool is_continuation_byte(char byte) { return (static_cast<unsigned char>(byte) & 0xC0) == 0x80; }

// Returns whether str.split() splits at c: Unicode's white space, and the separators U+001C to U+001F.
bool is_space(char32_t c);
// Returns whether all characters of a text, which must be valid UTF-8, are white space.
bool is_blank(std::string_view utf8);
bool is_letter(char32_t c);       // \p{L}
bool is_number(char32_t c);       // \p{N}
bool is_punctuation(char32_t c);  // \p{P}
bool is_symbol(char32_t c);       // \p{S}

// Returns the text in lower case, as str.lower() does: a capital sigma at the end of a word becomes a final sigma, and
// U+0130 becomes two code points.
std::u32string lower_case(std::u32string_view text);

// Returns the words of a text, which white space separates, as views of `text`.
std::vector<std::u32string_view> words_of(std::u32string_view text);

}  // namespace mh
