#include "text/merge_table.h"

#include <algorithm>
#include <functional>

namespace mh::text {

namespace {

struct PairKey {
  int32_t symbols[2];
  operator std::string_view() const { return {reinterpret_cast<const char*>(symbols), sizeof symbols}; }
};

}  // namespace

MergeTable::Entry& MergeTable::find_or_insert(int32_t left, int32_t right) { return entries_[PairKey{{left, right}}]; }

const MergeTable::Entry* MergeTable::find(int32_t left, int32_t right) const {
  if (left < 0 || right < 0) return nullptr;
  return entries_.find(WordKey(PairKey{{left, right}}));
}

void MergeTable::apply(std::vector<Symbol>& symbols, MergeOrder order, Workspace& workspace) const {
  using QueuedPair = Workspace::QueuedPair;
  const auto num_symbols = static_cast<int64_t>(symbols.size());
  // Doubly linked list of the remaining symbols; a symbol of 0 bytes was joined to the symbol before it.
  auto& links = workspace.links;
  links.clear();
  for (int64_t i = 0; i < num_symbols; ++i) links.push_back({i - 1, i + 1});
  auto symbol = [&](int64_t position) -> Symbol& { return symbols[static_cast<size_t>(position)]; };
  auto next_position = [&](int64_t position) -> int64_t& { return links[static_cast<size_t>(position)].next_position; };

  auto& queued_pairs = workspace.queued_pairs;
  queued_pairs.clear();
  auto queue_pair = [&](int64_t left) {
    if (left < 0 || next_position(left) >= num_symbols) return;
    const int32_t l = symbol(left).id, r = symbol(next_position(left)).id;
    const Entry* entry = find(l, r);
    if (entry == nullptr) return;
    queued_pairs.emplace_back(entry->rank, left, l, r);
    std::push_heap(queued_pairs.begin(), queued_pairs.end(), std::greater<>());
  };
  for (int64_t i = 0; i + 1 < num_symbols; ++i) queue_pair(i);
  // Returns whether a queue entry is still valid. With MergeOrder::one_by_one, as in Hugging Face tokenizers, the entry
  // is also valid if another pair is now at its position and joins to the same symbol.
  auto is_current = [&](const QueuedPair& queued_pair) {
    const auto [rank, position, left, right] = queued_pair;
    if (symbol(position).num_bytes == 0 || next_position(position) >= num_symbols) return false;
    const int32_t l = symbol(position).id, r = symbol(next_position(position)).id;
    if (l == left && r == right) return true;
    if (order == MergeOrder::rounds) return false;
    const Entry* entry = find(l, r);
    return entry != nullptr && entry->joined_symbol == find(left, right)->joined_symbol;
  };
  auto& joined_positions = workspace.joined_positions;
  while (!queued_pairs.empty()) {
    const size_t rank = std::get<0>(queued_pairs.front());
    joined_positions.clear();
    while (!queued_pairs.empty() && std::get<0>(queued_pairs.front()) == rank &&
           (order == MergeOrder::rounds || joined_positions.empty())) {
      const QueuedPair queued_pair = queued_pairs.front();
      std::pop_heap(queued_pairs.begin(), queued_pairs.end(), std::greater<>());
      queued_pairs.pop_back();
      if (!is_current(queued_pair)) continue;
      const auto [pair_rank, position, left, right] = queued_pair;
      Symbol& right_symbol = symbol(next_position(position));
      symbol(position) = {find(left, right)->joined_symbol, symbol(position).num_bytes + right_symbol.num_bytes};
      right_symbol.num_bytes = 0;
      next_position(position) = next_position(next_position(position));
      if (next_position(position) < num_symbols)
        links[static_cast<size_t>(next_position(position))].previous_position = position;
      joined_positions.push_back(position);
    }
    for (int64_t position : joined_positions) {
      queue_pair(links[static_cast<size_t>(position)].previous_position);
      queue_pair(position);
    }
  }
  std::erase_if(symbols, [](const Symbol& s) { return s.num_bytes == 0; });
}

}  // namespace mh::text
