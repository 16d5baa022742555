// Byte pair encoding applied: neighbouring symbols are joined, the pair with the least rank first, from left to right.
#pragma once

#include <cstdint>
#include <vector>

#include "text/word_map.h"

namespace mh::text {

// Where several places have the pair of least rank: all of them are joined before any pair that arises from that
// (subword-nmt), or the leftmost, and what arises takes part at once (tokenizers). They differ only for merges that no
// text gives, where a pair that arises has a lower rank than the one it arises from.
enum class MergeOrder { rounds, one_by_one };

struct Symbol {
  int32_t number;  // -1: one that no merge has
  size_t bytes;
};

class MergeTable {
 public:
  struct Entry {
    size_t rank = SIZE_MAX;
    int32_t symbol = -1;
  };
  // Of two neighbours; to be filled in where it is new.
  Entry& of(int32_t left, int32_t right);
  const Entry* find(int32_t left, int32_t right) const;
  // In time n log n of their number.
  void apply(std::vector<Symbol>& symbols, MergeOrder order) const;

 private:
  WordMap<Entry> merge_table_;  // keys: both symbols' numbers, as bytes
};

}  // namespace mh::text
