// Text normalisation and pre-tokenisation of BERT (BasicTokenizer; Devlin et al. 2019,
// https://arxiv.org/abs/1810.04805), identical for every character to BertNormalizer and BertPreTokenizer of Hugging
// Face tokenizers 0.22:
//
//   cleaning: tabs, line feeds, carriage returns and separators (Z*) become spaces; other control characters, format
//   and private-use characters and U+FFFD are removed; each CJK ideograph is a word;
//   accents: canonical decomposition (NFD), then removal of nonspacing marks (Mn);
//   lower case: each character is converted separately;
//   words: spaces separate words, and every punctuation mark is a word. Punctuation marks are the characters of the
//   categories P* and, in ASCII, every printable character other than a letter, a digit or a space.
//
// Hugging Face tokenizers and this file use the categories of Unicode 8.0, the decompositions of 9.0 and the lower case
// of 16.0; newer characters count as letters without decomposition.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace mh::text {

struct BertNormalisation {
  bool lowercase = true;
  bool strip_accents = true;
  bool operator==(const BertNormalisation&) const = default;
};

// A character of the normalised text, and the byte range [begin, end) of the original character.
struct BertCharacter {
  char32_t c = 0;
  uint32_t begin = 0, end = 0;
};

// Returns the normalised characters of `text`, valid UTF-8 of less than 4 GiB. The only remaining white space is
// U+0020.
std::vector<BertCharacter> bert_characters(std::string_view text, const BertNormalisation& options);

bool is_bert_punctuation(char32_t c);

// Returns the simple lower-case mapping of Unicode 16.0. For U+0130, whose full lower case is i and U+0307, returns i;
// callers handle U+0130 themselves.
char32_t simple_lower_case(char32_t c);

// Calls visit(std::span<const BertCharacter>) for every word of a normalised text.
template <class Visit>
void for_each_bert_word(std::span<const BertCharacter> text, const Visit& visit) {
  size_t begin = 0;
  for (size_t i = 0; i <= text.size(); ++i) {
    const bool is_space = i == text.size() || text[i].c == U' ';
    const bool is_punctuation_mark = !is_space && is_bert_punctuation(text[i].c);
    if (!is_space && !is_punctuation_mark) continue;
    if (i > begin) visit(text.subspan(begin, i - begin));
    if (is_punctuation_mark) visit(text.subspan(i, 1));
    begin = i + 1;
  }
}

// Returns the normalised form of an ASCII byte: a space for a tab, line feed or carriage return, 0 for other control
// characters, which are removed, otherwise the byte itself, in lower case if `lowercase`.
constexpr char normalised_ascii(char c, bool lowercase) {
  if (c == '\t' || c == '\n' || c == '\r') return ' ';
  if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) return 0;
  return lowercase && c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}
constexpr bool is_ascii_punctuation(char c) {
  return (c >= '!' && c <= '/') || (c >= ':' && c <= '@') || (c >= '[' && c <= '`') || (c >= '{' && c <= '~');
}

}  // namespace mh::text
