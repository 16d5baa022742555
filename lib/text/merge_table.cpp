#include "text/merge_table.h"

#include <queue>
#include <tuple>

namespace mh::text {

namespace {

struct PairKey {
  int32_t symbols[2];
  operator std::string_view() const { return {reinterpret_cast<const char*>(symbols), sizeof symbols}; }
};

}  // namespace

MergeTable::Entry& MergeTable::of(int32_t left, int32_t right) { return merge_table_[PairKey{{left, right}}]; }

const MergeTable::Entry* MergeTable::find(int32_t left, int32_t right) const {
  if (left < 0 || right < 0) return nullptr;
  return merge_table_.find(WordKey(PairKey{{left, right}}));
}

void MergeTable::apply(std::vector<Symbol>& symbols, MergeOrder order) const {
  const auto count = static_cast<int64_t>(symbols.size());
  struct Links {
    int64_t before, after;
  };
  // Doubly linked list of the remaining symbols; a symbol of 0 bytes was joined to the symbol before it.
  std::vector<Links> links(symbols.size());
  for (int64_t i = 0; i < count; ++i) links[static_cast<size_t>(i)] = {i - 1, i + 1};
  auto symbol = [&](int64_t at) -> Symbol& { return symbols[static_cast<size_t>(at)]; };
  auto after = [&](int64_t at) -> int64_t& { return links[static_cast<size_t>(at)].after; };

  // Queue of pairs that can be joined: rank, position, left symbol, right symbol.
  using QueuedPair = std::tuple<size_t, int64_t, int32_t, int32_t>;
  std::priority_queue<QueuedPair, std::vector<QueuedPair>, std::greater<>> queued_pairs;
  auto update_pair = [&](int64_t left) {
    if (left < 0 || after(left) >= count) return;
    const int32_t l = symbol(left).number, r = symbol(after(left)).number;
    if (const Entry* j = find(l, r)) queued_pairs.emplace(j->rank, left, l, r);
  };
  for (int64_t i = 0; i + 1 < count; ++i) update_pair(i);
  // Returns whether a queue entry is still valid. With one_by_one, as in Hugging Face tokenizers, another pair at the
  // same position is valid too if it joins to the same symbol.
  auto is_current = [&](const QueuedPair& place) {
    const auto [rank, at, left, right] = place;
    if (symbol(at).bytes == 0 || after(at) >= count) return false;
    const int32_t l = symbol(at).number, r = symbol(after(at)).number;
    if (l == left && r == right) return true;
    if (order == MergeOrder::rounds) return false;
    const Entry* now = find(l, r);
    return now != nullptr && now->symbol == find(left, right)->symbol;
  };
  std::vector<int64_t> joined;
  while (!queued_pairs.empty()) {
    const size_t rank = std::get<0>(queued_pairs.top());
    joined.clear();
    while (!queued_pairs.empty() && std::get<0>(queued_pairs.top()) == rank &&
           (order == MergeOrder::rounds || joined.empty())) {
      const QueuedPair place = queued_pairs.top();
      queued_pairs.pop();
      if (!is_current(place)) continue;
      const auto [r, at, left, right] = place;
      Symbol& merged = symbol(after(at));
      symbol(at) = {find(left, right)->symbol, symbol(at).bytes + merged.bytes};
      merged.bytes = 0;
      after(at) = after(after(at));
      if (after(at) < count) links[static_cast<size_t>(after(at))].before = at;
      joined.push_back(at);
    }
    for (int64_t at : joined) {
      update_pair(links[static_cast<size_t>(at)].before);
      update_pair(at);
    }
  }
  std::erase_if(symbols, [](const Symbol& s) { return s.bytes == 0; });
}

}  // namespace mh::text
