// Applies byte pair encoding: joins adjacent symbols, the pair of the lowest rank first, from left to right.
#pragma once

#include <cstdint>
#include <tuple>
#include <vector>

#include "text/word_map.h"

namespace mh::text {

// The order of merges if the pair of the lowest rank occurs several times. `rounds` (subword-nmt) joins all occurrences
// before it considers new pairs; `one_by_one` (Hugging Face tokenizers) joins the leftmost occurrence and considers new
// pairs at once. The results differ only if a new pair has a lower rank than the merge that creates it, which never
// happens with merges learnt from text.
enum class MergeOrder { rounds, one_by_one };

struct Symbol {
  int32_t id;        // id of the symbol; -1: the symbol occurs in no merge
  size_t num_bytes;  // length of the symbol's text
};

class MergeTable {
 public:
  struct Entry {
    size_t rank = SIZE_MAX;      // index of the merge in the list of merges
    int32_t joined_symbol = -1;  // id of the joined symbol
  };
  // Returns the entry of the merge of a pair of symbols. For a new pair, inserts a default entry, which the caller then
  // sets.
  Entry& find_or_insert(int32_t left, int32_t right);
  // Returns the entry of the merge of a pair of symbols, or null if the pair has no merge.
  const Entry* find(int32_t left, int32_t right) const;
  // Memory of apply(), which a caller that merges many words reuses.
  struct Workspace {
    struct Links {
      int64_t previous_position, next_position;
    };
    // A pair that can be joined: rank, position, left symbol, right symbol.
    using QueuedPair = std::tuple<size_t, int64_t, int32_t, int32_t>;
    std::vector<Links> links;
    std::vector<QueuedPair> queued_pairs;  // a heap
    std::vector<int64_t> joined_positions;
  };
  // Applies all merges to `symbols` in place, in O(n log n) for n symbols.
  void apply(std::vector<Symbol>& symbols, MergeOrder order, Workspace& workspace) const;
  void apply(std::vector<Symbol>& symbols, MergeOrder order) const {
    Workspace workspace;
    apply(symbols, order, workspace);
  }

 private:
  WordMap<Entry> entries_;  // key: the ids of both symbols, as bytes
};

}  // namespace mh::text
