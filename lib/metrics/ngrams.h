// N-grams that two sides share, counted exactly in time linear in their lengths: an n-gram is named by a number, that
// of its first n - 1 tokens and its last token, so no n-gram is ever compared as text.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace mh::metrics {

using Ids = std::span<const uint32_t>;  // a sentence as tokens; those that are the same have the same number

class NgramMatcher {
 public:
  // Adds to matches[n - 1], for n = 1 … size of `matches`, how many n-grams of the hypothesis are in the references,
  // each at most as often as in the reference that has it most often (Papineni et al. 2002, "modified precision").
  void match(Ids hypothesis, std::span<const Ids> references, std::span<int64_t> matches);

 private:
  // From (name of the first n - 1 tokens, last token) to a name: open addressing.
  class Names {
   public:
    void clear(size_t most);  // `most` names at the most
    uint32_t add(uint64_t key);
    uint32_t find(uint64_t key) const;  // kNone where it is not there
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
  struct Start {  // of an n-gram of the hypothesis that a reference has
    size_t position;
    uint32_t name;
  };
  void name_references(std::span<const Ids> references, size_t n);

  Names names_;
  std::vector<std::vector<uint32_t>> reference_names_;  // [reference][position]: of the n-gram that starts there
  std::vector<int64_t> most_, now_;                     // [name]: in the reference that has most; in one sentence
  std::vector<Start> starts_;
};

}  // namespace mh::metrics
