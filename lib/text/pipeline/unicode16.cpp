#include "text/pipeline/unicode16.h"

#include <utf8proc.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/unicode.h"

namespace mh::text {

namespace {

constexpr char32_t kLastCodePoint = 0x10FFFF;

// Characters whose category in Unicode 16.0 differs from the category in Unicode 15.0.
constexpr struct CategoryRange {
  char32_t first, last;
  utf8proc_category_t category;
} kCategoriesSinceUnicode15[] = {
    {0x897, 0x897, UTF8PROC_CATEGORY_MN},     {0x1B4E, 0x1B4F, UTF8PROC_CATEGORY_PO},
    {0x1B7F, 0x1B7F, UTF8PROC_CATEGORY_PO},   {0x1C89, 0x1C89, UTF8PROC_CATEGORY_LU},
    {0x1C8A, 0x1C8A, UTF8PROC_CATEGORY_LL},   {0x2427, 0x2429, UTF8PROC_CATEGORY_SO},
    {0x2FFC, 0x2FFF, UTF8PROC_CATEGORY_SO},   {0x31E4, 0x31E5, UTF8PROC_CATEGORY_SO},
    {0x31EF, 0x31EF, UTF8PROC_CATEGORY_SO},   {0xA7CB, 0xA7CC, UTF8PROC_CATEGORY_LU},
    {0xA7CD, 0xA7CD, UTF8PROC_CATEGORY_LL},   {0xA7DA, 0xA7DA, UTF8PROC_CATEGORY_LU},
    {0xA7DB, 0xA7DB, UTF8PROC_CATEGORY_LL},   {0xA7DC, 0xA7DC, UTF8PROC_CATEGORY_LU},
    {0x105C0, 0x105F3, UTF8PROC_CATEGORY_LO}, {0x10D40, 0x10D49, UTF8PROC_CATEGORY_ND},
    {0x10D4A, 0x10D4D, UTF8PROC_CATEGORY_LO}, {0x10D4E, 0x10D4E, UTF8PROC_CATEGORY_LM},
    {0x10D4F, 0x10D4F, UTF8PROC_CATEGORY_LO}, {0x10D50, 0x10D65, UTF8PROC_CATEGORY_LU},
    {0x10D69, 0x10D6D, UTF8PROC_CATEGORY_MN}, {0x10D6E, 0x10D6E, UTF8PROC_CATEGORY_PD},
    {0x10D6F, 0x10D6F, UTF8PROC_CATEGORY_LM}, {0x10D70, 0x10D85, UTF8PROC_CATEGORY_LL},
    {0x10D8E, 0x10D8F, UTF8PROC_CATEGORY_SM}, {0x10EC2, 0x10EC4, UTF8PROC_CATEGORY_LO},
    {0x10EFC, 0x10EFC, UTF8PROC_CATEGORY_MN}, {0x11380, 0x11389, UTF8PROC_CATEGORY_LO},
    {0x1138B, 0x1138B, UTF8PROC_CATEGORY_LO}, {0x1138E, 0x1138E, UTF8PROC_CATEGORY_LO},
    {0x11390, 0x113B5, UTF8PROC_CATEGORY_LO}, {0x113B7, 0x113B7, UTF8PROC_CATEGORY_LO},
    {0x113B8, 0x113BA, UTF8PROC_CATEGORY_MC}, {0x113BB, 0x113C0, UTF8PROC_CATEGORY_MN},
    {0x113C2, 0x113C2, UTF8PROC_CATEGORY_MC}, {0x113C5, 0x113C5, UTF8PROC_CATEGORY_MC},
    {0x113C7, 0x113CA, UTF8PROC_CATEGORY_MC}, {0x113CC, 0x113CD, UTF8PROC_CATEGORY_MC},
    {0x113CE, 0x113CE, UTF8PROC_CATEGORY_MN}, {0x113CF, 0x113CF, UTF8PROC_CATEGORY_MC},
    {0x113D0, 0x113D0, UTF8PROC_CATEGORY_MN}, {0x113D1, 0x113D1, UTF8PROC_CATEGORY_LO},
    {0x113D2, 0x113D2, UTF8PROC_CATEGORY_MN}, {0x113D3, 0x113D3, UTF8PROC_CATEGORY_LO},
    {0x113D4, 0x113D5, UTF8PROC_CATEGORY_PO}, {0x113D7, 0x113D8, UTF8PROC_CATEGORY_PO},
    {0x113E1, 0x113E2, UTF8PROC_CATEGORY_MN}, {0x116D0, 0x116E3, UTF8PROC_CATEGORY_ND},
    {0x1171E, 0x1171E, UTF8PROC_CATEGORY_MC}, {0x11BC0, 0x11BE0, UTF8PROC_CATEGORY_LO},
    {0x11BE1, 0x11BE1, UTF8PROC_CATEGORY_PO}, {0x11BF0, 0x11BF9, UTF8PROC_CATEGORY_ND},
    {0x11F5A, 0x11F5A, UTF8PROC_CATEGORY_MN}, {0x13460, 0x143FA, UTF8PROC_CATEGORY_LO},
    {0x16100, 0x1611D, UTF8PROC_CATEGORY_LO}, {0x1611E, 0x16129, UTF8PROC_CATEGORY_MN},
    {0x1612A, 0x1612C, UTF8PROC_CATEGORY_MC}, {0x1612D, 0x1612F, UTF8PROC_CATEGORY_MN},
    {0x16130, 0x16139, UTF8PROC_CATEGORY_ND}, {0x16D40, 0x16D42, UTF8PROC_CATEGORY_LM},
    {0x16D43, 0x16D6A, UTF8PROC_CATEGORY_LO}, {0x16D6B, 0x16D6C, UTF8PROC_CATEGORY_LM},
    {0x16D6D, 0x16D6F, UTF8PROC_CATEGORY_PO}, {0x16D70, 0x16D79, UTF8PROC_CATEGORY_ND},
    {0x18CFF, 0x18CFF, UTF8PROC_CATEGORY_LO}, {0x1CC00, 0x1CCEF, UTF8PROC_CATEGORY_SO},
    {0x1CCF0, 0x1CCF9, UTF8PROC_CATEGORY_ND}, {0x1CD00, 0x1CEB3, UTF8PROC_CATEGORY_SO},
    {0x1E5D0, 0x1E5ED, UTF8PROC_CATEGORY_LO}, {0x1E5EE, 0x1E5EF, UTF8PROC_CATEGORY_MN},
    {0x1E5F0, 0x1E5F0, UTF8PROC_CATEGORY_LO}, {0x1E5F1, 0x1E5FA, UTF8PROC_CATEGORY_ND},
    {0x1E5FF, 0x1E5FF, UTF8PROC_CATEGORY_PO}, {0x1F8B2, 0x1F8BB, UTF8PROC_CATEGORY_SO},
    {0x1F8C0, 0x1F8C1, UTF8PROC_CATEGORY_SO}, {0x1FA89, 0x1FA89, UTF8PROC_CATEGORY_SO},
    {0x1FA8F, 0x1FA8F, UTF8PROC_CATEGORY_SO}, {0x1FABE, 0x1FABE, UTF8PROC_CATEGORY_SO},
    {0x1FAC6, 0x1FAC6, UTF8PROC_CATEGORY_SO}, {0x1FADC, 0x1FADC, UTF8PROC_CATEGORY_SO},
    {0x1FADF, 0x1FADF, UTF8PROC_CATEGORY_SO}, {0x1FAE9, 0x1FAE9, UTF8PROC_CATEGORY_SO},
    {0x1FBCB, 0x1FBEF, UTF8PROC_CATEGORY_SO}, {0x2EBF0, 0x2EE5D, UTF8PROC_CATEGORY_LO},
};

// Returns the ranges of characters of one category in ascending order.
const std::vector<CategoryRange>& category_ranges() {
  static const std::vector<CategoryRange> ranges = [] {
    std::vector<CategoryRange> result;
    const CategoryRange* changed_range = std::begin(kCategoriesSinceUnicode15);
    for (char32_t c = 0; c <= kLastCodePoint; ++c) {
      while (changed_range != std::end(kCategoriesSinceUnicode15) && changed_range->last < c) ++changed_range;
      const bool is_changed = changed_range != std::end(kCategoriesSinceUnicode15) && changed_range->first <= c;
      const utf8proc_category_t category =
          is_changed ? changed_range->category : utf8proc_category(static_cast<utf8proc_int32_t>(c));
      if (!result.empty() && result.back().category == category) result.back().last = c;
      else result.push_back({c, c, category});
    }
    return result;
  }();
  return ranges;
}

// Names of the categories, in the order of utf8proc_category_t.
constexpr std::string_view kCategoryNames[] = {"Cn", "Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Mc", "Me", "Nd",
                                               "Nl", "No", "Pc", "Pd", "Ps", "Pe", "Pi", "Pf", "Po", "Sm",
                                               "Sc", "Sk", "So", "Zs", "Zl", "Zp", "Cc", "Cf", "Cs", "Co"};

CharacterSet word_characters(std::vector<CodePointRange> further_ranges) {
  for (const char* category : {"L", "M", "Nd", "Nl", "Pc"}) {
    const CharacterSet characters = characters_of_category(category);
    further_ranges.insert(further_ranges.end(), characters.ranges().begin(), characters.ranges().end());
  }
  // Letters in circles and squares, which have the property Alphabetic.
  for (const CodePointRange range : {CodePointRange{0x24B6, 0x24E9}, CodePointRange{0x1F130, 0x1F149},
                                     CodePointRange{0x1F150, 0x1F169}, CodePointRange{0x1F170, 0x1F189}})
    further_ranges.push_back(range);
  return CharacterSet(std::move(further_ranges));
}

}  // namespace

CharacterSet::CharacterSet(std::vector<CodePointRange> ranges) {
  std::sort(ranges.begin(), ranges.end(),
            [](const CodePointRange& a, const CodePointRange& b) { return a.first < b.first; });
  for (const CodePointRange& range : ranges) {
    if (!ranges_.empty() && range.first <= ranges_.back().last + 1)
      ranges_.back().last = std::max(ranges_.back().last, range.last);
    else ranges_.push_back(range);
  }
}

bool CharacterSet::contains(char32_t c) const {
  const auto range = std::lower_bound(ranges_.begin(), ranges_.end(), c,
                                      [](const CodePointRange& r, char32_t x) { return r.last < x; });
  return range != ranges_.end() && range->first <= c;
}

CharacterSet CharacterSet::complement() const {
  std::vector<CodePointRange> gaps;
  char32_t next = 0;
  for (const CodePointRange& range : ranges_) {
    if (range.first > next) gaps.push_back({next, range.first - 1});
    next = range.last + 1;
  }
  if (next <= kLastCodePoint) gaps.push_back({next, kLastCodePoint});
  return CharacterSet(std::move(gaps));
}

CharacterSet CharacterSet::united(const CharacterSet& other) const {
  std::vector<CodePointRange> ranges = ranges_;
  ranges.insert(ranges.end(), other.ranges_.begin(), other.ranges_.end());
  return CharacterSet(std::move(ranges));
}

std::bitset<256> CharacterSet::first_bytes() const {
  // The characters of each encoded length, one to four bytes.
  static constexpr struct {
    char32_t first, last;
  } lengths[] = {{0, 0x7F}, {0x80, 0x7FF}, {0x800, 0xFFFF}, {0x10000, kLastCodePoint}};
  std::bitset<256> bytes;
  for (const CodePointRange& range : ranges_)
    for (const auto& length : lengths) {
      const char32_t first = std::max(range.first, length.first), last = std::min(range.last, length.last);
      if (first > last) continue;
      const auto first_byte = [](char32_t c) -> unsigned {
        return c < 0x80 ? c : c < 0x800 ? 0xC0 | c >> 6 : c < 0x10000 ? 0xE0 | c >> 12 : 0xF0 | c >> 18;
      };
      for (unsigned byte = first_byte(first); byte <= first_byte(last); ++byte) bytes.set(byte);
    }
  return bytes;
}

CharacterTable::CharacterTable(const CharacterSet& set) : set_(set) {
  for (const CodePointRange& range : set_.ranges())
    for (char32_t c = range.first; c <= range.last && c < 0x10000; ++c) bits_[c >> 6] |= uint64_t{1} << (c & 63);
}

CharacterSet characters_of_category(std::string_view name) {
  std::vector<CodePointRange> ranges;
  for (const CategoryRange& range : category_ranges())
    if (kCategoryNames[range.category] == name || (name.size() == 1 && kCategoryNames[range.category][0] == name[0]))
      ranges.push_back({range.first, range.last});
  return CharacterSet(std::move(ranges));
}

const CharacterTable& white_space_characters() {
  static const CharacterTable characters(CharacterSet({{'\t', '\r'},
                                                       {' ', ' '},
                                                       {0x85, 0x85},
                                                       {0xA0, 0xA0},
                                                       {0x1680, 0x1680},
                                                       {0x2000, 0x200A},
                                                       {0x2028, 0x2029},
                                                       {0x202F, 0x202F},
                                                       {0x205F, 0x205F},
                                                       {0x3000, 0x3000}}));
  return characters;
}

const CharacterTable& onig_word_characters() {
  // Oniguruma's \w has the numbers of Latin-1 that are no digits, but not those beyond Latin-1.
  static const CharacterTable characters(word_characters({{0xB2, 0xB3}, {0xB9, 0xB9}, {0xBC, 0xBE}}));
  return characters;
}

const CharacterTable& rust_word_characters() {
  static const CharacterTable characters(word_characters({{0x200C, 0x200D}}));  // the joiners, Join_Control
  return characters;
}

}  // namespace mh::text
