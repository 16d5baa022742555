// Byte pair encoding as BpeTrainer of Hugging Face tokenizers 0.22 learns it (Sennrich, Haddow and Birch 2016, section
// 3.2), for WordPiece (wordpiece.h) and byte-level BPE (byte_bpe.h). The trainer repeatedly joins the pair of adjacent
// symbols with the highest count; among equal counts, the pair with the lowest ids. The details of the queue of pairs
// determine the order of joins and equal the package's queue: a pair that arises again after it was queued, because
// several joins yield the same symbol, gets another queue entry; each entry stores the words in which the pair arose at
// that time, and the count of an entry is updated only when the entry reaches the front. The package counts in 32 bits,
// so the results differ for texts in which a pair occurs 2^31 times.
//
// subword-nmt (merges.h) has its own learner, because it counts the neighbours of a joined symbol in another way, and
// its thresholds for rare pairs affect the result.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer.h"
#include "text/word_map.h"

namespace mh::text {

// Memory is linear in the total size of the distinct words. A join takes time linear in the sizes of the words that
// contain the pair.
class BpeTrainer {
 public:
  // `continuation_prefix`: prefix that the right symbol of a pair loses in the joined piece, such as "##".
  explicit BpeTrainer(std::string_view continuation_prefix = {}) : continuation_prefix_(continuation_prefix) {}

  // Returns the id of `piece`; a new piece gets the next id.
  int32_t find_or_insert_piece(std::string_view piece);
  bool has_piece(std::string_view piece) { return ids_.find(piece) != nullptr; }
  // Returns the pieces by id.
  const std::vector<std::string>& pieces() const { return pieces_; }
  // Adds a word, which occurs `count` times in the text. Must not be called after learn(). Words must be distinct for
  // the counts of pairs to be complete in each queue entry.
  void add_word(std::span<const int32_t> symbols, int64_t count);
  // Joins pairs until there are `max_size` pieces or no pair has a count of at least `min_count`, and of at least 1.
  // May be called once.
  void learn(int64_t max_size, int64_t min_count);
  // Returns the merges in the order of the joins. If a pair was joined several times, returns only its last merge, as
  // the package does.
  std::vector<Merge> merges() const;

 private:
  struct Pair {
    int32_t left, right;
    bool operator==(const Pair&) const = default;
  };
  struct Word {
    size_t begin;     // index in `symbols_` of the first symbol
    uint32_t length;  // number of symbols
    int64_t count;
  };
  struct PairCount {
    Pair pair;
    int64_t count = 0;
    std::vector<uint32_t> new_words;  // indices of the words in which the pair has arisen since queue_changed_pairs()
  };
  struct QueuedPair {
    int64_t count;
    Pair pair;
    uint32_t pair_index;                            // index in `pair_counts_`
    std::vector<uint32_t> words;                    // indices in `words_` of the words in which the pair arose
    bool operator<(const QueuedPair& other) const;  // highest count first, then the lowest ids
  };

  // Adds `sign` times the count of words_[word] to the count of `pair`. For a positive sign, also records the word in
  // PairCount::new_words.
  void add_to_pair_count(const Pair& pair, int sign, uint32_t word);
  // Queues the pairs that have arisen in some word since the last call.
  void queue_changed_pairs();
  // Joins all occurrences of a pair in the words of its queue entry, and queues the pairs that arise.
  void join(const QueuedPair& queued_pair);
  // Joins all occurrences of `pair` in words_[w], from left to right, and updates the counts of pairs.
  void join_in_word(uint32_t w, const Pair& pair, int32_t joined_symbol);

  std::string continuation_prefix_;
  std::vector<std::string> pieces_;
  WordMap<int32_t> ids_;          // id of each piece
  std::vector<int32_t> symbols_;  // symbols of all words; a word shrinks in place
  std::vector<Word> words_;
  WordMap<uint32_t> pair_indices_;  // index in `pair_counts_` by the ids of both symbols, as bytes, plus 1
  std::vector<PairCount> pair_counts_;
  std::vector<uint32_t> changed_pairs_;  // indices of the entries of `pair_counts_` with new words
  std::vector<QueuedPair> queue_;        // binary heap; its first element is joined next, unless its count is outdated
  std::vector<Pair> joins_;              // pairs in the order of the joins
};

}  // namespace mh::text
