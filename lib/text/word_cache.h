// A cache that maps words to their tokens; encoders use a WordCache because most words of a text repeat.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "text/word_map.h"

namespace mh::text {

// Calls `visit(word)` for each word of `text`. Only U+0020 separates words; other white space is part of a word.
template <class Visit>
void for_each_spaced_word(std::string_view text, const Visit& visit) {
  for (size_t begin = 0; begin < text.size();) {
    if (text[begin] == ' ') {
      ++begin;
      continue;
    }
    const size_t end = std::min(text.find(' ', begin), text.size());
    visit(text.substr(begin, end - begin));
    begin = end;
  }
}

class WordCache {
 public:
  // Appends the tokens of `word` to `out`. For a word that is not in the cache, `segment(word, tokens)` appends its
  // tokens to `tokens`.
  template <class Segment>
  void encode(const WordKey& word, std::vector<int32_t>& out, const Segment& segment) {
    if (word.text.size() > kMaxCachedBytes) return segment(word.text, out);
    if (const TokenSpan* span = spans_.find(word)) {
      const auto begin = tokens_.begin() + static_cast<int64_t>(span->begin);
      out.insert(out.end(), begin, begin + span->count);
      return;
    }
    // Clears the cache when it is full, to bound its memory.
    if (spans_.size() >= kMaxWords) {
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
  static constexpr size_t kMaxCachedBytes = 64;  // maximum length of a cached word
  static constexpr size_t kMaxWords = 1 << 19;   // capacity of the cache in words
  WordMap<TokenSpan> spans_;
  std::vector<int32_t> tokens_;
};

}  // namespace mh::text
