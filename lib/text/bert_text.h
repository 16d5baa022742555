// Text as BERT reads it before it is divided into pieces (Devlin et al. 2019, https://arxiv.org/abs/1810.04805, the
// BasicTokenizer of its code), for every character the same as the package tokenizers 0.22 (BertNormalizer and
// BertPreTokenizer):
//
//   control and format characters, private ones and U+FFFD are dropped; white space of all kinds is a space;
//   CJK ideographs are words of their own;
//   accents: canonical decomposition (NFD), then nonspacing marks (Mn) are dropped;
//   lower case, character by character;
//   words are what stands between spaces, and every punctuation mark (of ASCII all but letters and digits, P*) is one.
//
// That package knows the categories of Unicode 8.0, the decompositions of 9.0 and the lower case of 16.0, which is
// kept: what was added later is a letter that has no parts.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace mh::text {

struct BertText {
  bool lowercase = true;
  bool strip_accents = true;
  bool operator==(const BertText&) const = default;
};

// A character of the normalised text, and the character of the original that it comes from: bytes [begin, end).
struct BertCharacter {
  char32_t c = 0;
  uint32_t begin = 0, end = 0;
};

// Of valid UTF-8 of less than 4 GiB. Only U+0020 is left of white space.
std::vector<BertCharacter> bert_characters(std::string_view text, const BertText& options);

bool is_bert_punctuation(char32_t c);

// Calls visit(std::span<const BertCharacter>) for every word of a normalised text.
template <class Visit>
void each_bert_word(std::span<const BertCharacter> text, const Visit& visit) {
  size_t begin = 0;
  for (size_t at = 0; at <= text.size(); ++at) {
    const bool space = at == text.size() || text[at].c == U' ';
    const bool mark = !space && is_bert_punctuation(text[at].c);
    if (!space && !mark) continue;
    if (at > begin) visit(text.subspan(begin, at - begin));
    if (mark) visit(text.subspan(at, 1));
    begin = at + 1;
  }
}

// What becomes of a byte of ASCII in lower case: 0 for what is dropped, a space for white space, itself for the rest.
constexpr char bert_ascii(char c, bool lowercase) {
  if (c == '\t' || c == '\n' || c == '\r') return ' ';
  if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) return 0;
  return lowercase && c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}
constexpr bool is_ascii_punctuation(char c) {
  return (c >= '!' && c <= '/') || (c >= ':' && c <= '@') || (c >= '[' && c <= '`') || (c >= '{' && c <= '~');
}

}  // namespace mh::text
