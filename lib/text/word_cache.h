// A cache from words to their tokens, which encoders use since most words repeat.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "text/word_map.h"

namespace mh::text {

// Calls visit(word) for each word; only spaces separate words, other white space belongs to them.
template <class Visit>
void each_spaced_word(std::string_view text, const Visit& visit) {
  for (size_t at = 0; at < text.size();) {
    if (text[at] == ' ') {
      ++at;
      continue;
    }
    const size_t end = std::min(text.find(' ', at), text.size());
    visit(text.substr(at, end - at));
    at = end;
  }
}

class WordCache {
 public:
  // Appends the tokens of a word to `out`; segment(word, tokens) computes the tokens of a word that is not cached.
  template <class Segment>
  void encode(const WordKey& word, std::vector<int32_t>& out, const Segment& segment) {
    if (word.text.size() > kLongestCached) return segment(word.text, out);
    if (const TokenSpan* run = spans_.find(word)) {
      const auto begin = tokens_.begin() + static_cast<int64_t>(run->begin);
      out.insert(out.end(), begin, begin + run->count);
      return;
    }
    // Clears a full cache, to bound its memory.
    if (spans_.size() >= kMostWords) {
      spans_.clear();
      tokens_.clear();
    }
    const size_t begin = tokens_.size();
    segment(word.text, tokens_);
    spans_[word] = {begin, static_cast<uint32_t>(tokens_.size() - begin)};
    out.insert(out.end(), tokens_.begin() + static_cast<int64_t>(begin), tokens_.end());
  }

 private:
  struct TokenSpan {
    size_t begin = 0;
    uint32_t count = 0;
  };
  static constexpr size_t kLongestCached = 64;
  static constexpr size_t kMostWords = 1 << 19;
  WordMap<TokenSpan> spans_;
  std::vector<int32_t> tokens_;
};

}  // namespace mh::text
