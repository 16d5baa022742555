// Applies byte pair encoding: joins neighbouring symbols, the pair of the lowest rank first, from left to right.
#pragma once

#include <cstdint>
#include <vector>

#include "text/word_map.h"

namespace mh::text {

// The order of merges if the pair of the lowest rank occurs several times: all occurrences before any new pair
// (subword-nmt), or the leftmost, with new pairs taking part at once (tokenizers). The two differ only for merges that
// no text yields, in which a new pair has a lower rank than the pair it arises from.
enum class MergeOrder { rounds, one_by_one };

struct Symbol {
  int32_t number;  // -1: in no merge
  size_t bytes;
};

class MergeTable {
 public:
  struct Entry {
    size_t rank = SIZE_MAX;
    int32_t symbol = -1;
  };
  // Returns the entry of two neighbours, which the caller fills in if it is new.
  Entry& of(int32_t left, int32_t right);
  const Entry* find(int32_t left, int32_t right) const;
  // Merges the symbols; takes time n log n.
  void apply(std::vector<Symbol>& symbols, MergeOrder order) const;

 private:
  WordMap<Entry> merge_table_;  // keys: the numbers of both symbols, as bytes
};

}  // namespace mh::text
