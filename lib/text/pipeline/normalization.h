// Unicode normalisation as in Hugging Face tokenizers 0.22, which takes decompositions and combining classes from
// Unicode 9.0, and lower case from Unicode 16.0. Both were compared with tokenizers 0.22.1 for every character.
#pragma once

#include <string>
#include <string_view>

namespace mh::text {

enum class NormalizationForm { nfc, nfd, nfkc, nfkd };

// Writes the normal form of `text`, valid UTF-8, to `out`. Returns false, with an unspecified `out`, if the text is
// known to be in this form already.
bool normalize_unicode(std::string_view text, NormalizationForm form, std::string& out);

// Returns whether `StripAccents` removes the character: a mark (category M) of Unicode 9.0.
bool is_stripped_accent(char32_t c);

// Appends the lower case of `c`, as char::to_lowercase() of Rust: U+0130 becomes two characters.
void append_lower_case(char32_t c, std::string& out);

}  // namespace mh::text
