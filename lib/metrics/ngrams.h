// Counts the n-grams that a hypothesis shares with its references, exactly and in linear time. Each n-gram has a
// number. A hash map stores this number under the pair (number of the first n - 1 tokens, last token), so n-grams are
// never compared token by token.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace mh::metrics {

using TokenIds = std::span<const uint32_t>;  // a sentence as token numbers; equal tokens have equal numbers

class NgramMatcher {
 public:
  // Adds to `matches[n - 1]`, for n from 1 to the size of `matches`, the number of n-grams of the hypothesis that occur
  // in a reference. The count of each n-gram is clipped to its largest count in one reference (Papineni et al. 2002,
  // "modified precision").
  void match(TokenIds hypothesis, std::span<const TokenIds> references, std::span<int64_t> matches);

 private:
  // Hash map with open addressing from (id of the first n - 1 tokens, last token) to the id of an n-gram.
  class NgramIds {
   public:
    void clear(size_t capacity);        // removes all entries and makes room for `capacity` entries
    uint32_t add(uint64_t key);         // returns the id of `key`; assigns the next id to a new key
    uint32_t find(uint64_t key) const;  // returns the id of `key`; kNone if the key is absent
    uint32_t size() const { return size_; }

   private:
    struct Slot {
      uint64_t key;
      uint32_t id;
    };
    size_t locate(uint64_t key) const;
    std::vector<Slot> slots_;
    int shift_ = 0;
    uint32_t size_ = 0;
  };
  // An n-gram of the hypothesis that also occurs in a reference.
  struct NgramStart {
    size_t position;  // index of its first token
    uint32_t id;      // id of the n-gram in `ngram_ids_`
  };
  // Replaces the ids of (n - 1)-grams in `reference_ids_` by the ids of n-grams, sets `max_counts_`, and resets
  // `counts_` to 0.
  void assign_reference_ids(std::span<const TokenIds> references, size_t n);

  NgramIds ngram_ids_;
  // [reference][position]: id of the n-gram that starts at this position of the reference.
  std::vector<std::vector<uint32_t>> reference_ids_;
  // By id of the n-gram: largest count in one reference; count in the current sentence.
  std::vector<int64_t> max_counts_, counts_;
  std::vector<NgramStart> starts_;
};

}  // namespace mh::metrics
