#include "base/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <iterator>

namespace mh {

namespace {

utf8proc_category_t category(char32_t c) { return utf8proc_category(static_cast<utf8proc_int32_t>(c)); }

bool is_in_range(utf8proc_category_t category, utf8proc_category_t first, utf8proc_category_t last) {
  return category >= first && category <= last;
}

// Returns whether `c` has Unicode's property Case_Ignorable: nonspacing and enclosing marks, format characters,
// modifier letters and symbols, and the Word_Break classes MidLetter, MidNumLet and Single_Quote.
bool is_case_ignorable(char32_t c) {
  switch (category(c)) {
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_SK:
      return true;
    default:
      return std::u32string_view(
                 U"':.\u00B7\u0387\u055F\u05F4\u2018\u2019\u2024\u2027\uFE13\uFE52\uFE55\uFF07"
                 U"\uFF0E\uFF1A")
                 .find(c) != std::u32string_view::npos;
  }
}

// Returns whether `c`, which is not Case_Ignorable, has Unicode's property Cased: a letter in upper, lower or title
// case, or one of the other characters with the property Uppercase or Lowercase.
bool is_cased(char32_t c) {
  static constexpr struct {
    char32_t first, last;
  } cased_ranges[] = {{0xAA, 0xAA},       {0xBA, 0xBA},       {0x2160, 0x217F},  {0x24B6, 0x24E9},
                      {0x1F130, 0x1F149}, {0x1F150, 0x1F169}, {0x1F170, 0x1F189}};
  return is_in_range(category(c), UTF8PROC_CATEGORY_LU, UTF8PROC_CATEGORY_LT) ||
         std::any_of(std::begin(cased_ranges), std::end(cased_ranges),
                     [&](const auto& range) { return c >= range.first && c <= range.last; });
}

// Returns whether the first character of [begin, end) that is not Case_Ignorable is Cased.
template <class Iterator>
bool next_is_cased(Iterator begin, Iterator end) {
  begin = std::find_if_not(begin, end, is_case_ignorable);
  return begin != end && is_cased(*begin);
}

}  // namespace

std::u32string code_points(std::string_view utf8) {
  std::u32string text;
  text.reserve(utf8.size());
  const auto* p = reinterpret_cast<const utf8proc_uint8_t*>(utf8.data());
  for (auto num_remaining_bytes = static_cast<utf8proc_ssize_t>(utf8.size()); num_remaining_bytes > 0;) {
    utf8proc_int32_t c = *p;
    const utf8proc_ssize_t n =
        c < 0x80 ? 1 : std::max<utf8proc_ssize_t>(1, utf8proc_iterate(p, num_remaining_bytes, &c));
    text.push_back(static_cast<char32_t>(c));
    p += n;
    num_remaining_bytes -= n;
  }
  return text;
}

void append_utf8(char32_t c, std::string& out) {
  utf8proc_uint8_t bytes[4];
  const utf8proc_ssize_t n = utf8proc_encode_char(static_cast<utf8proc_int32_t>(c), bytes);
  out.append(bytes, bytes + n);
}

bool is_space(char32_t c) {
  if (c < 0x80) return c == ' ' || (c >= '\t' && c <= '\r') || (c >= 0x1C && c <= 0x1F);
  return c == 0x85 || is_in_range(category(c), UTF8PROC_CATEGORY_ZS, UTF8PROC_CATEGORY_ZP);
}

bool is_blank(std::string_view utf8) {
  // Avoids the conversion of most lines of text.
  if (!utf8.empty() && utf8[0] > ' ' && utf8[0] < 0x7F) return false;
  const std::u32string characters = code_points(utf8);
  return std::all_of(characters.begin(), characters.end(), is_space);
}

bool is_letter(char32_t c) { return is_in_range(category(c), UTF8PROC_CATEGORY_LU, UTF8PROC_CATEGORY_LO); }
bool is_number(char32_t c) { return is_in_range(category(c), UTF8PROC_CATEGORY_ND, UTF8PROC_CATEGORY_NO); }
bool is_punctuation(char32_t c) { return is_in_range(category(c), UTF8PROC_CATEGORY_PC, UTF8PROC_CATEGORY_PO); }
bool is_symbol(char32_t c) { return is_in_range(category(c), UTF8PROC_CATEGORY_SM, UTF8PROC_CATEGORY_SO); }

std::u32string lower_case(std::u32string_view text) {
  std::u32string lower;
  lower.reserve(text.size());
  for (auto it = text.begin(); it != text.end(); ++it) {
    if (*it == U'\u0130') {
      lower += U"i\u0307";
    } else if (*it == U'\u03A3') {  // final sigma after a Cased character, unless a Cased character follows
      const bool is_final =
          next_is_cased(std::make_reverse_iterator(it), text.rend()) && !next_is_cased(it + 1, text.end());
      lower += is_final ? U'\u03C2' : U'\u03C3';
    } else {
      lower += static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(*it)));
    }
  }
  return lower;
}

std::vector<std::u32string_view> words_of(std::u32string_view text) {
  std::vector<std::u32string_view> words;
  for (auto it = text.begin();;) {
    it = std::find_if_not(it, text.end(), is_space);
    if (it == text.end()) return words;
    const auto end = std::find_if(it, text.end(), is_space);
    words.emplace_back(it, end);
    it = end;
  }
}

}  // namespace mh
