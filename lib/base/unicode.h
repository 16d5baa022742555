// Characters as Python's str knows them (str.lower, str.isspace, the categories behind \p{P}), so that scores on text
// are those of Python's programs. Categories and case are of utf8proc's Unicode version: 15.0 in Debian 12.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace mh {

// Code points of valid UTF-8 (see find_invalid_utf8).
std::u32string code_points(std::string_view utf8);
void append_utf8(char32_t c, std::string& out);

// White space where str.split() parts words: Unicode's, and the separators U+001C to U+001F.
bool is_space(char32_t c);
bool is_letter(char32_t c);       // \p{L}
bool is_number(char32_t c);       // \p{N}
bool is_punctuation(char32_t c);  // \p{P}
bool is_symbol(char32_t c);       // \p{S}

// Lower case of the whole text: capital sigma by what stands around it, U+0130 as two code points.
std::u32string lower_case(std::u32string_view text);

// The words between white space; they point into `text`.
std::vector<std::u32string_view> words_of(std::u32string_view text);

}  // namespace mh
