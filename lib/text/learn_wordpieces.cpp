// Learns WordPieces with the queue of Hugging Face's WordPieceTrainer, whose details determine the order of joins. A
// pair that arises again after it was queued, because several joins yield the same symbol, gets another queue entry;
// each queue entry stores the words in which the pair arose at that time, and the count of an entry is updated only
// when the entry reaches the front.
#include <algorithm>
#include <unordered_map>

#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "base/unicode.h"
#include "text/wordpiece.h"

namespace mh::text {

namespace {

struct Pair {
  int32_t left = 0, right = 0;
  bool operator==(const Pair&) const = default;
  // NOLINTNEXTLINE(modernize-use-nullptr): clang-tidy sees the 0 in the comparison that the compiler generates.
  auto operator<=>(const Pair&) const = default;
};
struct PairHash {
  size_t operator()(const Pair& p) const {
    const uint64_t key = uint64_t{static_cast<uint32_t>(p.left)} << 32 | static_cast<uint32_t>(p.right);
    return static_cast<size_t>((key ^ key >> 29) * 0x9E3779B97F4A7C15);
  }
};

std::string utf8(char32_t c) {
  std::string text;
  append_utf8(c, text);
  return text;
}

// Returns the `max_characters` most frequent characters, ordered by code point.
std::u32string alphabet_of(const WordMap<uint64_t>& words, int64_t max_characters) {
  std::unordered_map<char32_t, uint64_t> counts;
  words.for_each([&](std::string_view word, uint64_t count) {
    for (char32_t c : code_points(word)) counts[c] += count;
  });
  std::vector<std::pair<char32_t, uint64_t>> characters(counts.begin(), counts.end());
  std::sort(characters.begin(), characters.end(), [](const auto& a, const auto& b) {
    return a.second != b.second ? a.second > b.second : a.first < b.first;
  });
  if (characters.size() > static_cast<size_t>(max_characters)) {
    log_info(str("the vocabulary has pieces for ", with_commas(max_characters), " of ",
                 count_with_commas(characters.size(), "character"),
                 " (--alphabet); words with other characters are [UNK]"));
    characters.resize(static_cast<size_t>(max_characters));
  }
  std::u32string alphabet;
  for (const auto& [c, count] : characters) alphabet += c;
  std::sort(alphabet.begin(), alphabet.end());
  return alphabet;
}

class WordPieceLearner {
 public:
  WordPieceLearner(const WordMap<uint64_t>& words, const WordPieceOptions& options) : options_(options) {
    for (const char* special : kSpecialPieces) find_or_insert_piece(special);
    const std::u32string alphabet = alphabet_of(words, options.max_alphabet_size);
    add_character_pieces(words, alphabet);
    if (static_cast<size_t>(options.max_size) < pieces_.size())
      refuse_usage("--size",
                   str("at least ", pieces_.size(), ": 5 special pieces, ", alphabet.size(), " characters, and ",
                       pieces_.size() - alphabet.size() - 5, " pieces that consist of the prefix ## and a character"),
                   str(options.max_size), "raise --size, or limit the characters with --alphabet");
    words.for_each([&](std::string_view word, uint64_t count) { add_word(word, static_cast<int64_t>(count)); });
    for (uint32_t w = 0; w < words_.size(); ++w) {
      const std::vector<int32_t>& symbols = words_[w].symbols;
      for (size_t i = 0; i + 1 < symbols.size(); ++i) add_to_pair_count({symbols[i], symbols[i + 1]}, +1, w);
    }
    queue_changed_pairs();
  }

  std::vector<std::string> learn() {
    ProgressLine progress("pieces", options_.max_size, "pieces");
    while (pieces_.size() < static_cast<size_t>(options_.max_size) && !queue_.empty()) {
      std::pop_heap(queue_.begin(), queue_.end());
      if (const int64_t count = counts_[queue_.back().pair]; queue_.back().count != count) {
        queue_.back().count = count;
        std::push_heap(queue_.begin(), queue_.end());
        continue;
      }
      const QueuedPair queued_pair = std::move(queue_.back());
      queue_.pop_back();
      if (queued_pair.count < std::max<int64_t>(1, options_.min_count)) break;
      join(queued_pair);
      progress.update(static_cast<int64_t>(pieces_.size()));
    }
    return std::move(pieces_);
  }

 private:
  struct Word {
    std::vector<int32_t> symbols;
    int64_t count;
  };
  struct QueuedPair {
    int64_t count;
    Pair pair;
    std::vector<uint32_t> words;                     // indices in `words_` of the words in which the pair arose
    bool operator<(const QueuedPair& other) const {  // highest count first, then the lowest ids
      return count != other.count ? count < other.count : other.pair < pair;
    }
  };

  // Returns the id of `piece`; appends a new piece to `pieces_`.
  int32_t find_or_insert_piece(const std::string& piece) {
    auto [it, inserted] = ids_.emplace(piece, static_cast<int32_t>(pieces_.size()));
    if (inserted) pieces_.push_back(piece);
    return it->second;
  }

  void add_character_pieces(const WordMap<uint64_t>& words, const std::u32string& alphabet) {
    // Whether a character of the alphabet follows another character in some word.
    std::unordered_map<char32_t, bool> follows_character;
    for (char32_t c : alphabet) {
      follows_character[c] = false;
      find_or_insert_piece(utf8(c));
    }
    words.for_each([&](std::string_view word, uint64_t) {
      const std::u32string text = code_points(word);
      for (size_t i = 1; i < text.size(); ++i)
        if (auto it = follows_character.find(text[i]); it != follows_character.end()) it->second = true;
    });
    for (char32_t c : alphabet)
      if (follows_character[c]) find_or_insert_piece(str(kContinuationPrefix, utf8(c)));
  }

  // Adds a word with its count. Characters outside the alphabet are omitted, so their neighbours become adjacent.
  void add_word(std::string_view text, int64_t count) {
    Word word{{}, count};
    bool is_first_character = true;
    for (char32_t c : code_points(text)) {
      if (ids_.count(utf8(c)) > 0)
        word.symbols.push_back(
            find_or_insert_piece(std::string(is_first_character ? "" : kContinuationPrefix) + utf8(c)));
      is_first_character = false;
    }
    words_.push_back(std::move(word));
  }

  // Adds `sign` times the count of words_[word] to the count of `pair`. For a positive sign, also records the word in
  // `new_words_by_pair_`.
  void add_to_pair_count(const Pair& pair, int sign, uint32_t word) {
    counts_[pair] += sign * words_[word].count;
    if (sign < 0) return;
    std::vector<uint32_t>& word_indices = new_words_by_pair_[pair];
    if (word_indices.empty() || word_indices.back() != word) word_indices.push_back(word);
  }
  void queue_changed_pairs() {
    for (auto& [pair, word_indices] : new_words_by_pair_)
      if (const int64_t count = counts_[pair]; count > 0) {
        queue_.push_back({count, pair, std::move(word_indices)});
        std::push_heap(queue_.begin(), queue_.end());
      }
    new_words_by_pair_.clear();
  }

  // Joins all occurrences of a pair in the words of its queue entry, and queues the pairs that arise.
  void join(const QueuedPair& queued_pair) {
    const Pair& pair = queued_pair.pair;
    std::string_view right_text = pieces_[static_cast<size_t>(pair.right)];
    if (right_text.starts_with(kContinuationPrefix)) right_text.remove_prefix(kContinuationPrefix.size());
    const int32_t joined_symbol =
        find_or_insert_piece(pieces_[static_cast<size_t>(pair.left)] + std::string(right_text));
    for (uint32_t w : queued_pair.words) join_in_word(w, pair, joined_symbol);
    queue_changed_pairs();
  }
  // Joins all occurrences of `pair` in `words_[w]`, from left to right, and updates the counts of pairs.
  void join_in_word(uint32_t w, const Pair& pair, int32_t joined_symbol) {
    const std::vector<int32_t> old_symbols = std::move(words_[w].symbols);
    std::vector<int32_t> new_symbols;
    new_symbols.reserve(old_symbols.size());
    for (size_t i = 0; i < old_symbols.size(); ++i) {
      if (old_symbols[i] != pair.left || i + 1 == old_symbols.size() || old_symbols[i + 1] != pair.right) {
        new_symbols.push_back(old_symbols[i]);
        continue;
      }
      if (!new_symbols.empty()) {
        add_to_pair_count({new_symbols.back(), pair.left}, -1, w);
        add_to_pair_count({new_symbols.back(), joined_symbol}, +1, w);
      }
      if (i + 2 < old_symbols.size()) {
        add_to_pair_count({pair.right, old_symbols[i + 2]}, -1, w);
        add_to_pair_count({joined_symbol, old_symbols[i + 2]}, +1, w);
      }
      new_symbols.push_back(joined_symbol);
      ++i;
    }
    words_[w].symbols = std::move(new_symbols);
  }

  const WordPieceOptions options_;
  std::vector<std::string> pieces_;
  std::unordered_map<std::string, int32_t> ids_;
  std::vector<Word> words_;
  std::unordered_map<Pair, int64_t, PairHash> counts_;
  // For each pair, the words in which the pair has arisen since the last queue_changed_pairs().
  std::unordered_map<Pair, std::vector<uint32_t>, PairHash> new_words_by_pair_;
  std::vector<QueuedPair> queue_;  // binary heap; its first element is joined next, unless its count is outdated
};

}  // namespace

std::vector<std::string> learn_wordpieces(const WordMap<uint64_t>& words, const WordPieceOptions& options) {
  return WordPieceLearner(words, options).learn();
}

}  // namespace mh::text
