// Counts n-grams that two sides share, exactly and in linear time: an n-gram is numbered by the number of its first n -
// 1 tokens and its last token, so n-grams are never compared as text.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace mh::metrics {

using Ids = std::span<const uint32_t>;  // a sentence as token numbers; equal tokens have equal numbers

class NgramMatcher {
 public:
  // Adds to matches[n - 1], for n = 1 … size of `matches`, the number of n-grams of the hypothesis in the references,
  // each clipped to its largest count in one reference (Papineni et al. 2002, "modified precision").
  void match(Ids hypothesis, std::span<const Ids> references, std::span<int64_t> matches);

 private:
  // Map from (number of the first n - 1 tokens, last token) to the number of an n-gram; open addressing.
  class Names {
   public:
    void clear(size_t most);  // makes room for `most` entries
    uint32_t add(uint64_t key);
    uint32_t find(uint64_t key) const;  // kNone if absent
    uint32_t size() const { return size_; }

   private:
    struct Slot {
      uint64_t key;
      uint32_t name;
    };
    size_t locate(uint64_t key) const;
    std::vector<Slot> slots_;
    int shift_ = 0;
    uint32_t size_ = 0;
  };
  struct Start {  // start of an n-gram of the hypothesis that a reference has
    size_t position;
    uint32_t name;
  };
  void name_references(std::span<const Ids> references, size_t n);

  Names names_;
  std::vector<std::vector<uint32_t>> reference_names_;  // [reference][position]: number of the n-gram that starts there
  std::vector<int64_t> most_, now_;  // [number]: largest count in a reference; count in the present sentence
  std::vector<Start> starts_;
};

}  // namespace mh::metrics
