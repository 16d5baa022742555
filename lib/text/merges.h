// Merges of byte pair encoding as subword-nmt has them (Sennrich, Haddow and Birch 2016, "Neural Machine Translation of
// Rare Words with Subword Units"): pairs of symbols that are joined, the most frequent one first. A word is at first a
// symbol a character, the last one with </w> behind it.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "text/merge_table.h"
#include "text/tokenizer.h"
#include "text/word_map.h"

namespace mh::text {

constexpr std::string_view kEndOfWord = "</w>";

// The merges that subword-nmt's learn-bpe finds in these words with their counts: at most so many, fewer where no pair
// occurs twice any more. The same ones, unless words hold white space other than spaces, which it takes for the ends of
// symbols.
std::vector<Merge> learn_merges(const WordMap<uint64_t>& words, int64_t merges);

// Its file: "#version: 0.2", then a merge a line, the symbols separated by a space. Error(input) for a merge that the
// file cannot hold, since that program and read_codes drop carriage returns and spaces at both ends of a line; a
// vocabulary holds every merge. `name` is for messages.
std::string write_codes(const std::vector<Merge>& merges, const std::string& name);
// Reads that, or takes the merges of a vocabulary of the type subword-nmt. `name` stands in messages; Error(input).
std::vector<Merge> read_codes(const std::string& bytes, const std::string& name);

// Divides words as its apply-bpe does: while two neighbours have a merge, all occurrences of the first one in the list
// are joined, from left to right. In time n log n of a word's length.
class Segmenter {
 public:
  explicit Segmenter(const std::vector<Merge>& merges);
  // The lengths, in bytes, of the pieces of a word of valid UTF-8 that is not empty.
  std::vector<size_t> divide(std::string_view word) const;

 private:
  int32_t symbol_of(const std::string& text);
  WordMap<int32_t> symbols_;
  MergeTable merge_table_;
};

// The pieces of a word as subword-nmt writes them: with @@ behind all but the last.
void each_piece(const Segmenter& segmenter, std::string_view word, const std::function<void(std::string_view)>& visit);

}  // namespace mh::text
