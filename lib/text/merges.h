// Learns, stores and applies the merges of byte pair encoding as in subword-nmt (Sennrich, Haddow and Birch 2016,
// "Neural Machine Translation of Rare Words with Subword Units"): pairs of symbols to join, the most frequent first.
// Initially each character of a word is a symbol, the last one with </w> appended.
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

// Returns the merges that subword-nmt's learn-bpe learns from `words`, which maps words to counts: at most
// `num_merges`, and fewer if no pair of symbols occurs twice any more. The result equals learn-bpe's unless a word
// contains white space, such as a tab, since learn-bpe also splits symbols at white space.
std::vector<Merge> learn_merges(const WordMap<uint64_t>& words, int64_t num_merges);

// Returns the text of a codes file of subword-nmt: "#version: 0.2", then one merge per line, its symbols separated by a
// space. Throws Error(input) for a merge that the file cannot represent, since subword-nmt and read_codes() drop
// carriage returns and spaces at both ends of a line. A vocabulary file can represent every merge. `name` is for
// messages.
std::string serialize_codes(const std::vector<Merge>& merges, const std::string& name);
// Reads a codes file, or the merges of a vocabulary of the type subword-nmt. `name` is for messages. Throws
// Error(input) for other or damaged content.
std::vector<Merge> read_codes(const std::string& bytes, const std::string& name);

// Splits words into pieces as subword-nmt's apply-bpe does: while any two adjacent symbols have a merge, joins all
// occurrences of the earliest such merge in the list, from left to right. Takes O(n log n) for a word of n characters.
class Segmenter {
 public:
  explicit Segmenter(const std::vector<Merge>& merges);
  // Returns the lengths, in bytes, of the pieces of a non-empty word of valid UTF-8.
  std::vector<size_t> piece_lengths(std::string_view word) const;

 private:
  // Returns the id of the symbol `text`; assigns the next id to a new symbol.
  int32_t find_or_insert_symbol(const std::string& text);
  WordMap<int32_t> symbol_ids_;
  MergeTable merge_table_;
};

// Calls `visit` with each piece of a word in subword-nmt's form: all pieces but the last end in @@.
void for_each_piece(const Segmenter& segmenter, std::string_view word,
                    const std::function<void(std::string_view)>& visit);

}  // namespace mh::text
