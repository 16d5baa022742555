#include "text/pipeline/normalization.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <map>
#include <unordered_map>
#include <vector>

#include "base/unicode.h"
#include "text/bert_text.h"
#include "text/pipeline/unicode16.h"

namespace mh::text {

namespace {

// Marks (category M) that Unicode added since 9.0; 'StripAccents' keeps these characters.
constexpr CodePointRange kMarksSinceUnicode9[] = {
    {0x7FD, 0x7FD},     {0x897, 0x89F},     {0x8CA, 0x8D3},     {0x9FE, 0x9FE},     {0xAFA, 0xAFF},
    {0xB55, 0xB55},     {0xC04, 0xC04},     {0xC3C, 0xC3C},     {0xCF3, 0xCF3},     {0xD00, 0xD00},
    {0xD3B, 0xD3C},     {0xD81, 0xD81},     {0xEBA, 0xEBA},     {0xECE, 0xECE},     {0x1715, 0x1715},
    {0x180F, 0x180F},   {0x1ABF, 0x1ACE},   {0x1CF7, 0x1CF7},   {0x1DF6, 0x1DFA},   {0xA82C, 0xA82C},
    {0xA8FF, 0xA8FF},   {0x10D24, 0x10D27}, {0x10D69, 0x10D6D}, {0x10EAB, 0x10EAC}, {0x10EFC, 0x10EFF},
    {0x10F46, 0x10F50}, {0x10F82, 0x10F85}, {0x11070, 0x11070}, {0x11073, 0x11074}, {0x110C2, 0x110C2},
    {0x11145, 0x11146}, {0x111C9, 0x111C9}, {0x111CE, 0x111CF}, {0x11241, 0x11241}, {0x1133B, 0x1133B},
    {0x113B8, 0x113C0}, {0x113C2, 0x113C2}, {0x113C5, 0x113C5}, {0x113C7, 0x113CA}, {0x113CC, 0x113D0},
    {0x113D2, 0x113D2}, {0x113E1, 0x113E2}, {0x1145E, 0x1145E}, {0x1182C, 0x1183A}, {0x11930, 0x11935},
    {0x11937, 0x11938}, {0x1193B, 0x1193E}, {0x11940, 0x11940}, {0x11942, 0x11943}, {0x119D1, 0x119D7},
    {0x119DA, 0x119E0}, {0x119E4, 0x119E4}, {0x11A01, 0x11A0A}, {0x11A33, 0x11A39}, {0x11A3B, 0x11A3E},
    {0x11A47, 0x11A47}, {0x11A51, 0x11A5B}, {0x11A8A, 0x11A99}, {0x11D31, 0x11D36}, {0x11D3A, 0x11D3A},
    {0x11D3C, 0x11D3D}, {0x11D3F, 0x11D45}, {0x11D47, 0x11D47}, {0x11D8A, 0x11D8E}, {0x11D90, 0x11D91},
    {0x11D93, 0x11D97}, {0x11EF3, 0x11EF6}, {0x11F00, 0x11F01}, {0x11F03, 0x11F03}, {0x11F34, 0x11F3A},
    {0x11F3E, 0x11F42}, {0x11F5A, 0x11F5A}, {0x13440, 0x13440}, {0x13447, 0x13455}, {0x1611E, 0x1612F},
    {0x16F4F, 0x16F4F}, {0x16F7F, 0x16F87}, {0x16FE4, 0x16FE4}, {0x16FF0, 0x16FF1}, {0x1CF00, 0x1CF2D},
    {0x1CF30, 0x1CF46}, {0x1E08F, 0x1E08F}, {0x1E130, 0x1E136}, {0x1E2AE, 0x1E2AE}, {0x1E2EC, 0x1E2EF},
    {0x1E4EC, 0x1E4EF}, {0x1E5EE, 0x1E5EF}};
// Characters that have a combining class in Unicode 15.0, but not in 9.0.
constexpr CodePointRange kOrderedSinceUnicode9[] = {
    {0x7FD, 0x7FD},     {0x898, 0x89F},     {0x8CA, 0x8D3},     {0x9FE, 0x9FE},     {0xC3C, 0xC3C},
    {0xD3B, 0xD3C},     {0xEBA, 0xEBA},     {0x1715, 0x1715},   {0x1ABF, 0x1ACE},   {0x1DF6, 0x1DFA},
    {0xA82C, 0xA82C},   {0x10D24, 0x10D27}, {0x10EAB, 0x10EAC}, {0x10EFD, 0x10EFF}, {0x10F46, 0x10F50},
    {0x10F82, 0x10F85}, {0x11070, 0x11070}, {0x1133B, 0x1133B}, {0x1145E, 0x1145E}, {0x11839, 0x1183A},
    {0x1193D, 0x1193E}, {0x11943, 0x11943}, {0x119E0, 0x119E0}, {0x11A34, 0x11A34}, {0x11A47, 0x11A47},
    {0x11A99, 0x11A99}, {0x11D42, 0x11D42}, {0x11D44, 0x11D45}, {0x11D97, 0x11D97}, {0x11F41, 0x11F42},
    {0x16FF0, 0x16FF1}, {0x1E08F, 0x1E08F}, {0x1E130, 0x1E136}, {0x1E2AE, 0x1E2AE}, {0x1E2EC, 0x1E2EF},
    {0x1E4EC, 0x1E4EF}};
// Characters that have a decomposition, canonical or compatibility, in Unicode 15.0, but not in 9.0.
constexpr CodePointRange kDecomposedSinceUnicode9[] = {
    {0x32FF, 0x32FF},   {0xA7F2, 0xA7F4},   {0xAB69, 0xAB69},   {0x10781, 0x10785}, {0x10787, 0x107B0},
    {0x107B2, 0x107BA}, {0x11938, 0x11938}, {0x1E030, 0x1E06D}, {0x1F16C, 0x1F16C}, {0x1FBF0, 0x1FBF9}};

constexpr char32_t kEndOfDecompositions = 0x2FA20;  // no character from here on decomposes or has a combining class,
                                                    // except U+E0100 to U+E01EF, whose class is 0
// Hangul syllables are composed and decomposed by arithmetic (Unicode 16.0, section 3.12).
constexpr char32_t kHangulBase = 0xAC00, kLeadBase = 0x1100, kVowelBase = 0x1161, kTrailBase = 0x11A7;
constexpr char32_t kNumLeads = 19, kNumVowels = 21, kNumTrails = 28;

int combining_class(char32_t c) {
  if (c < 0x300 || is_in_any(kOrderedSinceUnicode9, c)) return 0;
  return utf8proc_get_property(static_cast<utf8proc_int32_t>(c))->combining_class;
}

bool is_compatibility(NormalizationForm form) {
  return form == NormalizationForm::nfkc || form == NormalizationForm::nfkd;
}
bool is_composed(NormalizationForm form) { return form == NormalizationForm::nfc || form == NormalizationForm::nfkc; }

// A character with its combining class.
struct ClassedCharacter {
  char32_t c;
  int combining_class;
};

void append_decomposition(char32_t c, bool compatibility, std::vector<ClassedCharacter>& out) {
  std::array<utf8proc_int32_t, 32> codes;  // the longest compatibility decomposition has 18 characters
  utf8proc_ssize_t num_codes = 0;
  if (c >= 0xA0 && !is_in_any(kDecomposedSinceUnicode9, c)) {
    int boundary = 0;
    const auto options = static_cast<utf8proc_option_t>(UTF8PROC_DECOMPOSE | (compatibility ? UTF8PROC_COMPAT : 0));
    num_codes =
        utf8proc_decompose_char(static_cast<utf8proc_int32_t>(c), codes.data(), std::ssize(codes), options, &boundary);
  }
  if (num_codes <= 0) return out.push_back({c, combining_class(c)});
  for (utf8proc_ssize_t i = 0; i < num_codes; ++i) {
    const auto part = static_cast<char32_t>(codes[static_cast<size_t>(i)]);
    out.push_back({part, combining_class(part)});
  }
}

uint64_t pair_key(char32_t first, char32_t second) { return uint64_t{first} << 32 | second; }

// Returns the composed character of each pair of characters, without Hangul syllables.
const std::unordered_map<uint64_t, char32_t>& compositions() {
  static const std::unordered_map<uint64_t, char32_t> map = [] {
    std::unordered_map<uint64_t, char32_t> result;
    for (char32_t c = 0xC0; c < kEndOfDecompositions; ++c) {
      if ((c >= kHangulBase && c < kHangulBase + kNumLeads * kNumVowels * kNumTrails) ||
          is_in_any(kDecomposedSinceUnicode9, c))
        continue;
      // Composing the decomposition of one character restores the character, unless it is excluded from composition.
      std::vector<ClassedCharacter> parts;
      append_decomposition(c, false, parts);
      if (parts.size() < 2 || combining_class(c) != 0 || parts[0].combining_class != 0) continue;
      std::vector<utf8proc_int32_t> codes;
      for (const ClassedCharacter& part : parts) codes.push_back(static_cast<utf8proc_int32_t>(part.c));
      if (utf8proc_normalize_utf32(codes.data(), std::ssize(codes),
                                   static_cast<utf8proc_option_t>(UTF8PROC_COMPOSE | UTF8PROC_STABLE)) != 1 ||
          static_cast<char32_t>(codes[0]) != c)
        continue;
      // The first character of the pair is the composition of all parts but the last.
      codes.clear();
      for (size_t i = 0; i + 1 < parts.size(); ++i) codes.push_back(static_cast<utf8proc_int32_t>(parts[i].c));
      const utf8proc_ssize_t size = utf8proc_normalize_utf32(
          codes.data(), std::ssize(codes), static_cast<utf8proc_option_t>(UTF8PROC_COMPOSE | UTF8PROC_STABLE));
      if (size == 1) result[pair_key(static_cast<char32_t>(codes[0]), parts.back().c)] = c;
    }
    return result;
  }();
  return map;
}

// Returns the composed character of a pair; 0 if there is none.
char32_t composition_of(char32_t first, char32_t second) {
  if (first >= kLeadBase && first < kLeadBase + kNumLeads && second >= kVowelBase && second < kVowelBase + kNumVowels)
    return kHangulBase + ((first - kLeadBase) * kNumVowels + second - kVowelBase) * kNumTrails;
  if (first >= kHangulBase && first < kHangulBase + kNumLeads * kNumVowels * kNumTrails &&
      (first - kHangulBase) % kNumTrails == 0 && second > kTrailBase && second < kTrailBase + kNumTrails)
    return first + second - kTrailBase;
  const auto pair = compositions().find(pair_key(first, second));
  return pair == compositions().end() ? 0 : pair->second;
}

// Composes a decomposed and ordered text in place (Unicode 16.0, section 3.11, D117).
void compose(std::vector<ClassedCharacter>& text) {
  size_t size = 0, starter = SIZE_MAX;
  int last_class = 0;  // combining class of the last character kept after the starter; 0: none
  for (size_t i = 0; i < text.size(); ++i) {
    const ClassedCharacter character = text[i];
    if (starter != SIZE_MAX) {
      const bool is_blocked = size > starter + 1 && (last_class == 0 || last_class >= character.combining_class);
      if (!is_blocked)
        if (const char32_t composed = composition_of(text[starter].c, character.c); composed != 0) {
          text[starter].c = composed;
          continue;
        }
    }
    if (character.combining_class == 0) {
      starter = size;
    }
    last_class = character.combining_class;
    text[size++] = character;
  }
  text.resize(size);
}

// Returns the characters that a text of the form may contain anywhere without being changed by normalisation.
const CharacterTable& stable_characters(NormalizationForm form) {
  static const auto sets = [] {
    std::vector<CharacterTable> result;
    std::vector<bool> composes_as_second(kEndOfDecompositions);
    for (const auto& [pair, composed] : compositions()) composes_as_second[static_cast<uint32_t>(pair)] = true;
    for (char32_t c = kVowelBase; c < kVowelBase + kNumVowels; ++c) composes_as_second[c] = true;
    for (char32_t c = kTrailBase + 1; c < kTrailBase + kNumTrails; ++c) composes_as_second[c] = true;
    std::vector<ClassedCharacter> parts;
    // In the order of NormalizationForm.
    for (const NormalizationForm f :
         {NormalizationForm::nfc, NormalizationForm::nfd, NormalizationForm::nfkc, NormalizationForm::nfkd}) {
      std::vector<CodePointRange> ranges{{kEndOfDecompositions, 0x10FFFF}};
      for (char32_t c = 0; c < kEndOfDecompositions; ++c) {
        parts.clear();
        append_decomposition(c, is_compatibility(f), parts);
        if (is_composed(f)) compose(parts);
        if (parts.size() == 1 && parts[0].c == c && combining_class(c) == 0 &&
            !(is_composed(f) && composes_as_second[c]))
          ranges.push_back({c, c});
      }
      result.emplace_back(CharacterSet(std::move(ranges)));
    }
    return result;
  }();
  return sets[static_cast<size_t>(form)];
}

}  // namespace

bool normalize_unicode(std::string_view text, NormalizationForm form, std::string& out) {
  const char *p = text.data(), *end = p + text.size();
  const auto is_ascii = [](char c) { return static_cast<unsigned char>(c) < 0x80; };
  p = std::find_if_not(p, end, is_ascii);
  if (p == end) return false;
  const CharacterTable& stable = stable_characters(form);
  while (p < end) {
    const DecodedCharacter character = decode_utf8(p);
    if (!stable.contains(character.c)) break;
    p += character.num_bytes;
  }
  if (p == end) return false;
  std::vector<ClassedCharacter> characters;
  characters.reserve(text.size());
  for (p = text.data(); p < end;) {
    const DecodedCharacter character = decode_utf8(p);
    p += character.num_bytes;
    append_decomposition(character.c, is_compatibility(form), characters);
  }
  const auto is_starter = [](const ClassedCharacter& c) { return c.combining_class == 0; };
  for (auto it = characters.begin(); it != characters.end();) {
    const auto begin = std::find_if_not(it, characters.end(), is_starter);
    it = std::find_if(begin, characters.end(), is_starter);
    if (it - begin > 1)
      std::stable_sort(begin, it, [](const ClassedCharacter& a, const ClassedCharacter& b) {
        return a.combining_class < b.combining_class;
      });
  }
  if (is_composed(form)) compose(characters);
  out.clear();
  for (const ClassedCharacter& character : characters) append_utf8(character.c, out);
  return true;
}

bool is_stripped_accent(char32_t c) {
  if (c < 0x300) return false;
  if (c == 0x1CF2 || c == 0x1CF3) return true;  // letters since Unicode 11.0, marks before
  static const CharacterTable marks(characters_of_category("M"));
  return marks.contains(c) && !is_in_any(kMarksSinceUnicode9, c);
}

void append_lower_case(char32_t c, std::string& out) {
  if (c < 0x80) {
    out += static_cast<char>(c >= 'A' && c <= 'Z' ? c + 0x20 : c);
    return;
  }
  if (c == 0x130) {
    out += "i\u0307";
    return;
  }
  append_utf8(simple_lower_case(c), out);
}

}  // namespace mh::text
