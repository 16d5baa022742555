// Learns merges exactly as subword-nmt's learn-bpe does. If a symbol arises from several merges (ab + a and a + ba),
// the counts of learn-bpe are not exact and its result depends on how it counts and prunes pairs. This code therefore
// counts and prunes in the same way: it counts the pairs next to a joined symbol again if the symbol already occurred
// in the word; it sets pairs below a threshold aside with their current count, and counts later occurrences from zero.
#include <algorithm>
#include <unordered_map>

#include "base/log.h"
#include "base/unicode.h"
#include "text/merges.h"

namespace mh::text {

namespace {

constexpr int64_t kMinCount = 2;  // learn-bpe's --min-frequency

class MergeLearner {
 public:
  explicit MergeLearner(const WordMap<uint64_t>& words) {
    words.for_each([&](std::string_view text, uint64_t count) { add_word(text, static_cast<int64_t>(count)); });
    for (size_t w = 0; w < words_.size(); ++w)
      for (size_t i = 0; i + 1 < words_[w].symbols.size(); ++i) add_to_pair_count(words_[w].symbols, i, w, 1);
    for (int32_t p : active_pairs_) defer(pair_at(p), pair_at(p).count);
  }

  std::vector<Merge> learn(int64_t num_merges) {
    std::vector<Merge> result;
    if (active_pairs_.empty()) return result;
    ProgressLine progress("merges", num_merges, "merges");
    // `threshold` takes the same values as in learn-bpe, so pairs are pruned after the same merges.
    double threshold = static_cast<double>(pair_at(most_frequent_pair()).count) / 10;
    for (int64_t i = 0; i < num_merges; ++i) {
      if (active_pairs_.empty() || (i > 0 && static_cast<double>(pair_at(most_frequent_pair()).count) < threshold)) {
        prune(threshold);
        restore_deferred();
        threshold = static_cast<double>(pair_at(most_frequent_pair()).count * i) / (static_cast<double>(i) + 10000.0);
        prune(threshold);
      }
      const int32_t best_pair = most_frequent_pair();
      if (pair_at(best_pair).count < kMinCount) break;
      result.push_back({text_of(pair_at(best_pair).left), text_of(pair_at(best_pair).right)});
      merge(best_pair);
      if (i % 100 == 0) prune(threshold);
      progress.update(i + 1);
    }
    return result;
  }

 private:
  struct Word {
    std::vector<int32_t> symbols;
    int64_t count;
  };
  struct Pair {
    int32_t left, right;
    int64_t count = 0;           // current count, valid while the pair is active
    int64_t deferred_count = 0;  // count when the pair was last set aside, or before the first merge
    bool is_active = false;      // the pair is listed in `active_pairs_`
    bool was_deferred = false;   // `deferred_count` is set: the pair preceded the first merge or was set aside
    std::unordered_map<size_t, int32_t> occurrences_by_word;  // number of occurrences by index of the word in `words_`
  };

  void add_word(std::string_view text, int64_t count) {
    Word word{{}, count};
    for (size_t i = 0; i < text.size();) {
      size_t n = 1;
      while (i + n < text.size() && is_continuation_byte(text[i + n])) ++n;
      std::string symbol(text.substr(i, n));
      if (i + n == text.size()) symbol += kEndOfWord;
      word.symbols.push_back(find_or_insert_symbol(symbol));
      i += n;
    }
    words_.push_back(std::move(word));
  }
  // Returns the id of `symbol`; assigns the next id to a new symbol.
  int32_t find_or_insert_symbol(const std::string& symbol) {
    auto [it, inserted] = symbol_ids_.emplace(symbol, static_cast<int32_t>(symbol_texts_.size()));
    if (inserted) symbol_texts_.push_back(symbol);
    return it->second;
  }
  const std::string& text_of(int32_t symbol) const { return symbol_texts_[static_cast<size_t>(symbol)]; }

  // Returns the index in `pairs_` of a pair of symbols; appends a new pair.
  int32_t find_or_insert_pair(int32_t left, int32_t right) {
    const uint64_t key = uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right);
    auto [it, inserted] = pair_indices_.emplace(key, static_cast<int32_t>(pairs_.size()));
    if (inserted) pairs_.push_back({left, right, 0, 0, false, false, {}});
    return it->second;
  }
  // Adds `sign` times the count of words_[word] to the count of the pair of symbols[index] and symbols[index + 1]. An
  // inactive pair becomes active, and its count starts at 0.
  void add_to_pair_count(const std::vector<int32_t>& symbols, size_t index, size_t word, int sign) {
    const int32_t p = find_or_insert_pair(symbols[index], symbols[index + 1]);
    Pair& pair = pair_at(p);
    if (!pair.is_active) {
      pair.is_active = true;
      pair.count = 0;
      active_pairs_.push_back(p);
    }
    pair.count += sign * words_[word].count;
    pair.occurrences_by_word[word] += sign;
  }

  // Returns the index of the pair with the highest count; among equal counts, of the pair with the bytewise greatest
  // symbols.
  int32_t most_frequent_pair() const {
    return *std::max_element(active_pairs_.begin(), active_pairs_.end(), [&](int32_t a, int32_t b) {
      const Pair &x = pair_at(a), &y = pair_at(b);
      if (x.count != y.count) return x.count < y.count;
      if (x.left != y.left) return text_of(x.left) < text_of(y.left);
      return text_of(x.right) < text_of(y.right);
    });
  }
  // Stores `count` as the deferred count of a pair, which stays active until the caller changes `is_active`.
  static void defer(Pair& pair, int64_t count) {
    pair.deferred_count = count;
    pair.was_deferred = true;
  }
  // Sets aside all active pairs whose count is below `threshold`.
  void prune(double threshold) {
    std::erase_if(active_pairs_, [&](int32_t p) {
      Pair& pair = pair_at(p);
      if (static_cast<double>(pair.count) >= threshold) return false;
      // A negative count is the change since the pair was set aside.
      defer(pair, pair.count < 0 ? pair.deferred_count + pair.count : pair.count);
      pair.is_active = false;
      return true;
    });
  }
  // Makes the pairs that have a deferred count the only active pairs, with the deferred count as their current count.
  void restore_deferred() {
    active_pairs_.clear();
    for (size_t p = 0; p < pairs_.size(); ++p) {
      Pair& pair = pairs_[p];
      pair.is_active = pair.was_deferred;
      if (!pair.was_deferred) continue;
      pair.count = pair.deferred_count;
      active_pairs_.push_back(static_cast<int32_t>(p));
    }
  }

  // Joins all occurrences of a pair, in each word from left to right, and updates the counts of the neighbouring pairs.
  void merge(int32_t best_pair) {
    const int32_t left = pair_at(best_pair).left, right = pair_at(best_pair).right;
    const int32_t joined_symbol = find_or_insert_symbol(text_of(left) + text_of(right));
    std::unordered_map<size_t, int32_t> best_occurrences_by_word;
    best_occurrences_by_word.swap(pair_at(best_pair).occurrences_by_word);
    for (const auto& [w, num_occurrences] : best_occurrences_by_word) {
      if (num_occurrences < 1) continue;
      const std::vector<int32_t> old_symbols = std::move(words_[w].symbols);
      std::vector<int32_t>& new_symbols = words_[w].symbols;
      new_symbols.clear();
      for (size_t i = 0; i < old_symbols.size(); ++i) {
        if (!has_pair_at(old_symbols, i, left, right)) {
          new_symbols.push_back(old_symbols[i]);
          continue;
        }
        new_symbols.push_back(joined_symbol);
        if (i > 0) add_to_pair_count(old_symbols, i - 1, w, -1);
        // If another occurrence follows immediately, the iteration that joins it updates the pair between the two.
        if (i + 2 < old_symbols.size() && !has_pair_at(old_symbols, i + 2, left, right))
          add_to_pair_count(old_symbols, i + 1, w, -1);
        ++i;
      }
      for (size_t i = 0; i < new_symbols.size(); ++i) {
        if (new_symbols[i] != joined_symbol) continue;
        if (i > 0) add_to_pair_count(new_symbols, i - 1, w, +1);
        if (i + 1 < new_symbols.size() && new_symbols[i + 1] != joined_symbol) add_to_pair_count(new_symbols, i, w, +1);
      }
    }
    pair_at(best_pair).count = 0;
  }
  static bool has_pair_at(const std::vector<int32_t>& symbols, size_t index, int32_t left, int32_t right) {
    return index + 1 < symbols.size() && symbols[index] == left && symbols[index + 1] == right;
  }

  Pair& pair_at(int32_t index) { return pairs_[static_cast<size_t>(index)]; }
  const Pair& pair_at(int32_t index) const { return pairs_[static_cast<size_t>(index)]; }

  std::vector<Word> words_;
  std::vector<std::string> symbol_texts_;
  std::unordered_map<std::string, int32_t> symbol_ids_;
  std::vector<Pair> pairs_;
  std::unordered_map<uint64_t, int32_t> pair_indices_;
  std::vector<int32_t> active_pairs_;
};

}  // namespace

std::vector<Merge> learn_merges(const WordMap<uint64_t>& words, int64_t num_merges) {
  return MergeLearner(words).learn(num_merges);
}

}  // namespace mh::text
