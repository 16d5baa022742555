// Sorted tables of ranges of characters.
#pragma once

#include <algorithm>
#include <cstddef>

namespace mh::text {

// A range of characters [first, last].
struct CodePointRange {
  char32_t first, last;
  bool operator==(const CodePointRange&) const = default;
};

// Returns whether `c` lies in a range of the table, whose ranges are ascending and do not overlap.
template <size_t N>
bool is_in_any(const CodePointRange (&ranges)[N], char32_t c) {
  const CodePointRange* range =
      std::lower_bound(ranges, ranges + N, c, [](const CodePointRange& r, char32_t x) { return r.last < x; });
  return range != ranges + N && range->first <= c;
}

}  // namespace mh::text
