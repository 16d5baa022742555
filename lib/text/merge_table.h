// Applies byte pair encoding: joins adjacent symbols, the pair of the lowest rank first, from left to right.
#pragma once

#include <cstdint>
#include <vector>

#include "text/word_map.h"

namespace mh::text {

// The order of merges if the pair of the lowest rank occurs several times. `rounds` (subword-nmt) joins all occurrences
// before it considers new pairs; `one_by_one` (Hugging Face tokenizers) joins the leftmost occurrence and considers new
// pairs at once. The results differ only if a new pair has a lower rank than a pair it arises from, which never happens
// with merges learnt from text.
enum class MergeOrder { rounds, one_by_one };

struct Symbol {
  int32_t number;  // -1: occurs in no merge
  size_t bytes;
};

class MergeTable {
 public:
  struct Entry {
    size_t rank = SIZE_MAX;
    int32_t symbol = -1;
  };
  // Returns the entry of a pair of symbols; the caller fills in a new one, whose symbol is -1.
  Entry& of(int32_t left, int32_t right);
  // Returns the entry of a pair, or null.
  const Entry* find(int32_t left, int32_t right) const;
  // Applies all merges to n symbols, in O(n log n).
  void apply(std::vector<Symbol>& symbols, MergeOrder order) const;

 private:
  WordMap<Entry> merge_table_;  // key: the numbers of both symbols, as bytes
};

}  // namespace mh::text
