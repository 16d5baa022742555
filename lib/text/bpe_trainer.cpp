#include "text/bpe_trainer.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/log.h"

namespace mh::text {

namespace {

// Returns the ids of two symbols as the bytes of a WordMap key.
template <class Pair>
std::string_view key_of(const Pair& pair) {
  static_assert(sizeof(Pair) == 8);
  return {reinterpret_cast<const char*>(&pair), sizeof pair};
}

}  // namespace

bool BpeTrainer::QueuedPair::operator<(const QueuedPair& other) const {
  if (count != other.count) return count < other.count;
  return std::pair(other.pair.left, other.pair.right) < std::pair(pair.left, pair.right);
}

int32_t BpeTrainer::find_or_insert_piece(std::string_view piece) {
  if (const int32_t* id = ids_.find(piece)) return *id;
  const auto id = static_cast<int32_t>(pieces_.size());
  pieces_.emplace_back(piece);
  return ids_[piece] = id;
}

void BpeTrainer::add_word(std::span<const int32_t> symbols, int64_t count) {
  const auto w = static_cast<uint32_t>(words_.size());
  words_.push_back({symbols_.size(), static_cast<uint32_t>(symbols.size()), count});
  symbols_.insert(symbols_.end(), symbols.begin(), symbols.end());
  for (size_t i = 0; i + 1 < symbols.size(); ++i) add_to_pair_count({symbols[i], symbols[i + 1]}, +1, w);
}

void BpeTrainer::learn(int64_t max_size, int64_t min_count) {
  ProgressLine progress("pieces", max_size, "pieces");
  queue_changed_pairs();
  while (pieces_.size() < static_cast<size_t>(max_size) && !queue_.empty()) {
    std::pop_heap(queue_.begin(), queue_.end());
    if (const int64_t count = pair_counts_[queue_.back().pair_index].count; queue_.back().count != count) {
      queue_.back().count = count;
      std::push_heap(queue_.begin(), queue_.end());
      continue;
    }
    const QueuedPair queued_pair = std::move(queue_.back());
    queue_.pop_back();
    if (queued_pair.count < std::max<int64_t>(1, min_count)) break;
    join(queued_pair);
    progress.update(static_cast<int64_t>(pieces_.size()));
  }
}

std::vector<Merge> BpeTrainer::merges() const {
  WordMap<size_t> last_joins;  // index in `joins_` of the last join of each pair
  last_joins.reserve(joins_.size());
  for (size_t i = 0; i < joins_.size(); ++i) last_joins[key_of(joins_[i])] = i;
  std::vector<Merge> merges;
  for (size_t i = 0; i < joins_.size(); ++i)
    if (*last_joins.find(key_of(joins_[i])) == i)
      merges.push_back({pieces_[static_cast<size_t>(joins_[i].left)], pieces_[static_cast<size_t>(joins_[i].right)]});
  return merges;
}

void BpeTrainer::add_to_pair_count(const Pair& pair, int sign, uint32_t word) {
  uint32_t& number = pair_indices_[key_of(pair)];
  if (number == 0) {
    pair_counts_.push_back({pair, 0, {}});
    number = static_cast<uint32_t>(pair_counts_.size());
  }
  PairCount& pair_count = pair_counts_[number - 1];
  pair_count.count += sign * words_[word].count;
  if (sign < 0) return;
  if (pair_count.new_words.empty()) changed_pairs_.push_back(number - 1);
  if (pair_count.new_words.empty() || pair_count.new_words.back() != word) pair_count.new_words.push_back(word);
}

void BpeTrainer::queue_changed_pairs() {
  for (const uint32_t index : changed_pairs_) {
    PairCount& pair_count = pair_counts_[index];
    std::vector<uint32_t> new_words = std::move(pair_count.new_words);
    pair_count.new_words.clear();
    if (pair_count.count <= 0) continue;
    queue_.push_back({pair_count.count, pair_count.pair, index, std::move(new_words)});
    std::push_heap(queue_.begin(), queue_.end());
  }
  changed_pairs_.clear();
}

void BpeTrainer::join(const QueuedPair& queued_pair) {
  const Pair& pair = queued_pair.pair;
  std::string_view right_text = pieces_[static_cast<size_t>(pair.right)];
  if (right_text.starts_with(continuation_prefix_)) right_text.remove_prefix(continuation_prefix_.size());
  const int32_t joined_symbol = find_or_insert_piece(pieces_[static_cast<size_t>(pair.left)] + std::string(right_text));
  joins_.push_back(pair);
  for (uint32_t w : queued_pair.words) join_in_word(w, pair, joined_symbol);
  queue_changed_pairs();
}

void BpeTrainer::join_in_word(uint32_t w, const Pair& pair, int32_t joined_symbol) {
  Word& word = words_[w];
  int32_t* const symbols = symbols_.data() + word.begin;
  size_t new_length = 0;
  for (size_t i = 0; i < word.length; ++i) {
    if (symbols[i] != pair.left || i + 1 == word.length || symbols[i + 1] != pair.right) {
      symbols[new_length++] = symbols[i];
      continue;
    }
    if (new_length > 0) {
      const int32_t previous_symbol = symbols[new_length - 1];
      add_to_pair_count({previous_symbol, pair.left}, -1, w);
      add_to_pair_count({previous_symbol, joined_symbol}, +1, w);
    }
    if (i + 2 < word.length) {
      const int32_t next_symbol = symbols[i + 2];
      add_to_pair_count({pair.right, next_symbol}, -1, w);
      add_to_pair_count({joined_symbol, next_symbol}, +1, w);
    }
    symbols[new_length++] = joined_symbol;
    ++i;
  }
  word.length = static_cast<uint32_t>(new_length);
}

}  // namespace mh::text
