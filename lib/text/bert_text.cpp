#include "text/bert_text.h"

#include <utf8proc.h>

#include <algorithm>

#include "text/code_point_ranges.h"

namespace mh::text {

namespace {

// Characters that Unicode 9.0 to 15.0 added: marks, punctuation, format characters, and letters that have a
// decomposition. category() treats these characters as unassigned. Adjacent ranges are merged if no character of
// Unicode 8.0 lies between them.
constexpr CodePointRange kAddedSinceUnicode9[] = {
    {0x61D, 0x61D},     {0x7FD, 0x7FD},     {0x890, 0x8E2},     {0x9FD, 0x9FE},     {0xA76, 0xA76},
    {0xAFA, 0xAFF},     {0xB55, 0xB55},     {0xC04, 0xC3C},     {0xC77, 0xC77},     {0xC84, 0xC84},
    {0xD00, 0xD00},     {0xD3B, 0xD3C},     {0xD81, 0xD81},     {0xEBA, 0xEBA},     {0xECE, 0xECE},
    {0x1715, 0x1715},   {0x180F, 0x1886},   {0x1ABF, 0x1ACE},   {0x1B7D, 0x1B7E},   {0x1DF6, 0x1DFB},
    {0x2E43, 0x2E5D},   {0xA82C, 0xA82C},   {0xA8C5, 0xA8C5},   {0xA8FF, 0xA8FF},   {0xA9BD, 0xA9BD},
    {0x10D24, 0x10F89}, {0x11070, 0x11074}, {0x110C2, 0x110CD}, {0x111CF, 0x111CF}, {0x1123E, 0x11241},
    {0x1133B, 0x1133B}, {0x11438, 0x1145E}, {0x11660, 0x1166C}, {0x116B9, 0x116B9}, {0x1182F, 0x11FFF},
    {0x12FF1, 0x13455}, {0x16E97, 0x16F4F}, {0x16FE2, 0x16FF1}, {0x1CF00, 0x1CF46}, {0x1E000, 0x1E4EF},
    {0x1E944, 0x1E95F}};

// The marks of kAddedSinceUnicode9 that Unicode 9.0 added. Canonical ordering sorts these marks, since Hugging Face
// tokenizers takes the combining classes from Unicode 9.0.
constexpr CodePointRange kOrderedMarks[] = {{0x8D4, 0x8E1},     {0x1DFB, 0x1DFB},   {0x11442, 0x11446},
                                            {0x11C3F, 0x11C3F}, {0x1E000, 0x1E02A}, {0x1E944, 0x1E94A}};

// The CJK ideographs, as in Hugging Face tokenizers, which omits U+2B820 to U+2B91F, unlike BERT's own code.
constexpr CodePointRange kIdeographs[] = {{0x3400, 0x4DBF},   {0x4E00, 0x9FFF},   {0xF900, 0xFAFF},  {0x20000, 0x2A6DF},
                                          {0x2A700, 0x2B81F}, {0x2B920, 0x2CEAF}, {0x2F800, 0x2FA1F}};

utf8proc_category_t category(char32_t c) {
  if (c == 0x166D || c == 0x111C9) return UTF8PROC_CATEGORY_PO;  // category before Unicode 12.0 and 11.0, respectively
  if (c == 0x1734) return UTF8PROC_CATEGORY_MN;                  // category before Unicode 14.0
  if (is_in_any(kAddedSinceUnicode9, c)) return UTF8PROC_CATEGORY_CN;
  return utf8proc_category(static_cast<utf8proc_int32_t>(c));
}

bool is_removed_character(char32_t c) {
  switch (category(c)) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CO:
      return true;
    default:
      return c == 0xFFFD;
  }
}

bool is_white_space(char32_t c) {
  const utf8proc_category_t c_category = category(c);
  return c_category >= UTF8PROC_CATEGORY_ZS && c_category <= UTF8PROC_CATEGORY_ZP;
}

// Returns the canonical combining class, by which canonical ordering sorts marks; 0: the character is not moved. U+0300
// is the first character with a class other than 0.
int combining_class_of(char32_t c) {
  if (c < 0x300 || (is_in_any(kAddedSinceUnicode9, c) && !is_in_any(kOrderedMarks, c))) return 0;
  return utf8proc_get_property(static_cast<utf8proc_int32_t>(c))->combining_class;
}

// Removes and replaces characters ("cleaning" in bert_text.h), and inserts spaces around ideographs.
std::vector<BertCharacter> clean_text(std::string_view text) {
  std::vector<BertCharacter> out;
  out.reserve(text.size() + 8);
  const auto* bytes = reinterpret_cast<const utf8proc_uint8_t*>(text.data());
  for (size_t offset = 0; offset < text.size();) {
    utf8proc_int32_t code = bytes[offset];
    if (code < 0x80) {
      const auto begin = static_cast<uint32_t>(offset++);
      if (const char c = normalised_ascii(static_cast<char>(code), false); c != 0)
        out.push_back({static_cast<char32_t>(c), begin, begin + 1});
      continue;
    }
    const auto num_remaining = static_cast<utf8proc_ssize_t>(text.size() - offset);
    const size_t size =
        static_cast<size_t>(std::max<utf8proc_ssize_t>(1, utf8proc_iterate(bytes + offset, num_remaining, &code)));
    const auto c = static_cast<char32_t>(code);
    BertCharacter character{c, static_cast<uint32_t>(offset), static_cast<uint32_t>(offset + size)};
    offset += size;
    if (is_removed_character(c)) continue;
    if (is_white_space(c)) character.c = U' ';
    const bool is_ideograph = is_in_any(kIdeographs, c);
    if (is_ideograph) out.push_back({U' ', character.begin, character.end});
    out.push_back(character);
    if (is_ideograph) out.push_back({U' ', character.begin, character.end});
  }
  return out;
}

// A character of a canonical decomposition; `is_additional` is true for all characters but the first of the
// decomposition.
struct DecomposedCharacter {
  char32_t c;
  int combining_class;
  bool is_additional;
};

// Appends the canonical decomposition of `c`. U+00C0 is the first character that has one.
void append_decomposition(char32_t c, std::vector<DecomposedCharacter>& decomposition) {
  utf8proc_int32_t codes[4];  // the longest canonical decomposition has 4 code points
  int boundary = 0;
  utf8proc_ssize_t num_codes = 0;
  if (c >= 0xC0 && !is_in_any(kAddedSinceUnicode9, c))
    num_codes = utf8proc_decompose_char(static_cast<utf8proc_int32_t>(c), codes, std::ssize(codes), UTF8PROC_DECOMPOSE,
                                        &boundary);
  if (num_codes <= 0) return decomposition.push_back({c, combining_class_of(c), false});
  for (utf8proc_ssize_t i = 0; i < num_codes; ++i) {
    const auto component = static_cast<char32_t>(codes[i]);
    decomposition.push_back({component, combining_class_of(component), i > 0});
  }
}

// Decomposes the text, sorts marks canonically, and removes nonspacing marks. As in Hugging Face tokenizers, byte
// ranges are assigned after sorting: the n-th character that is not `is_additional` gets the range of the n-th original
// character, and an `is_additional` character gets the range of the character before it.
void strip_accents(std::vector<BertCharacter>& text) {
  std::vector<DecomposedCharacter> decomposition;
  decomposition.reserve(text.size() + 8);
  for (const BertCharacter& character : text) append_decomposition(character.c, decomposition);
  for (auto it = decomposition.begin(); it != decomposition.end();) {
    auto is_starter = [](const DecomposedCharacter& p) { return p.combining_class == 0; };
    const auto begin = std::find_if_not(it, decomposition.end(), is_starter);
    it = std::find_if(begin, decomposition.end(), is_starter);
    if (it - begin > 1)
      std::stable_sort(begin, it, [](const DecomposedCharacter& a, const DecomposedCharacter& b) {
        return a.combining_class < b.combining_class;
      });
  }
  std::vector<BertCharacter> out;
  out.reserve(decomposition.size());
  size_t num_original_characters = 0;
  for (const DecomposedCharacter& component : decomposition) {
    if (!component.is_additional) ++num_original_characters;
    if (component.c >= 0x300 && category(component.c) == UTF8PROC_CATEGORY_MN) continue;
    const BertCharacter& original = text[num_original_characters - 1];
    out.push_back({component.c, original.begin, original.end});
  }
  text.swap(out);
}

void lower_case(std::vector<BertCharacter>& text) {
  std::vector<BertCharacter> out;
  out.reserve(text.size());
  for (const BertCharacter& character : text) {
    // U+0130 is the only character whose lower case is two characters.
    const bool is_dotted_capital_i = character.c == 0x130;
    out.push_back({is_dotted_capital_i ? U'i' : simple_lower_case(character.c), character.begin, character.end});
    if (is_dotted_capital_i) out.push_back({0x307, character.begin, character.end});
  }
  text.swap(out);
}

}  // namespace

char32_t simple_lower_case(char32_t c) {
  if (c < 0x80) return c >= 'A' && c <= 'Z' ? c + 0x20 : c;
  // Lower-case mappings added in Unicode 16.0, which utf8proc_tolower() lacks.
  switch (c) {
    case 0x1C89:
      return 0x1C8A;
    case 0xA7CB:
      return 0x264;
    case 0xA7CC:
    case 0xA7DA:
      return c + 1;
    case 0xA7DC:
      return 0x19B;
    default:
      if (c >= 0x10D50 && c <= 0x10D65) return c + 0x20;
      return static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c)));
  }
}

bool is_bert_punctuation(char32_t c) {
  if (c < 0x80) return is_ascii_punctuation(static_cast<char>(c));
  const utf8proc_category_t c_category = category(c);
  return c_category >= UTF8PROC_CATEGORY_PC && c_category <= UTF8PROC_CATEGORY_PO;
}

std::vector<BertCharacter> bert_characters(std::string_view text, const BertNormalisation& options) {
  std::vector<BertCharacter> characters = clean_text(text);
  if (options.strip_accents) strip_accents(characters);
  if (options.lowercase) lower_case(characters);
  return characters;
}

}  // namespace mh::text
