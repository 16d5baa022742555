// Storage of the key/value cache: growth, the row table for in-place decoding, and reordering of rows.
#include "attention/cache.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "nn/aten.h"

namespace mh::attention {

// Grows the storage, if necessary, to hold the positions of k and v after the cached positions.
void Cache::reserve(const at::Tensor& k, const at::Tensor& v) {
  const int64_t added = k.size(2);
  if (keys_.defined() && first_ + length_ + added <= keys_.size(2)) return;
  const int64_t capacity = std::max<int64_t>(2 * (length_ + added), 64);
  auto grow = [&](at::Tensor& store, const at::Tensor& x) {
    at::Tensor larger =
        at::empty({store.defined() ? store.size(0) : x.size(0), x.size(1), capacity, x.size(3)}, x.options());
    if (length_ > 0) larger.narrow(2, 0, length_).copy_(store.narrow(2, first_, length_));
    store = larger;
  };
  grow(keys_, k);
  grow(values_, v);
  if (table_.defined()) {
    at::Tensor larger = at::empty({table_.size(0), capacity}, table_.options());
    larger.narrow(1, 0, length_).copy_(table_.narrow(1, first_, length_));
    table_ = larger;
  }
  first_ = 0;
}

std::pair<at::Tensor, at::Tensor> Cache::append(const at::Tensor& k, const at::Tensor& v) {
  gather();
  reserve(k, v);
  const int64_t end = first_ + length_, added = k.size(2);
  keys_.narrow(2, end, added).copy_(k);
  values_.narrow(2, end, added).copy_(v);
  length_ += added;
  return all();
}

std::pair<at::Tensor, at::Tensor> Cache::all() {
  gather();
  return {keys_.narrow(2, first_, length_), values_.narrow(2, first_, length_)};
}

Cache::InPlaceView Cache::append_in_place(const at::Tensor& k, const at::Tensor& v) {
  reserve(k, v);
  const int64_t rows = k.size(0);
  const at::Tensor own = at::arange(rows, at::kInt).unsqueeze(1);
  if (!table_.defined()) table_ = own.repeat({1, keys_.size(2)});
  else table_.narrow(1, first_ + length_, 1).copy_(own);
  ++length_;
  return {keys_.narrow(2, first_, length_), values_.narrow(2, first_, length_), table_.narrow(1, first_, length_)};
}

// Copies keys and values so that physical row b holds all positions of batch row b, and removes the row table.
void Cache::gather() {
  if (!table_.defined()) return;
  const at::Tensor rows = table_.narrow(1, first_, length_).to(at::kLong),
                   positions = at::arange(first_, first_ + length_, at::kLong);
  for (at::Tensor* store : {&keys_, &values_})
    *store = at::index(store->transpose(1, 2), {rows, positions}).transpose(1, 2).contiguous();
  table_.reset();
  first_ = 0;
}

void Cache::keep_last(int64_t positions) {
  if (length_ <= positions) return;
  first_ += length_ - positions;
  length_ = positions;
}

namespace {

// Returns the rows to copy as a pair (target rows, source rows) if reordering is possible in place, that is, if no
// source row is overwritten; otherwise nothing.
std::optional<std::pair<std::vector<int64_t>, std::vector<int64_t>>> in_place_moves(const at::Tensor& rows,
                                                                                    int64_t before) {
  const int64_t after = rows.numel();
  const auto* from = rows.const_data_ptr<int64_t>();
  std::pair<std::vector<int64_t>, std::vector<int64_t>> moved;
  if (after > before) return std::nullopt;
  for (int64_t i = 0; i < after; ++i) {
    if (from[i] == i) continue;
    if (from[i] < after && from[from[i]] != from[i]) return std::nullopt;
    moved.first.push_back(i);
    moved.second.push_back(from[i]);
  }
  return moved;
}

// Returns a new store (B', h, capacity, size) whose row i is row rows[i] of `store`. Copies only the positions [first,
// first + length), to the positions [0, length).
at::Tensor gather_rows(const at::Tensor& store, const at::Tensor& rows, int64_t first, int64_t length) {
  auto sizes = store.sizes().vec();
  sizes[0] = rows.numel();
  at::Tensor moved = at::empty(sizes, store.options());
  at::Tensor into = moved.narrow(2, 0, length);
  at::index_select_out(into, store.narrow(2, first, length), 0, rows);
  return moved;
}

}  // namespace

void Cache::reorder_state(const at::Tensor& rows) {
  for (auto& [name, tensor] : state_) tensor = tensor.index_select(0, rows.to(tensor.device()));
}

void Cache::reorder(const at::Tensor& rows) {
  reorder_state(rows);
  reorder_rows(rows);
}

void Cache::reorder_rows(const at::Tensor& row_indices) {
  if (length_ == 0 || !keys_.defined()) return;
  // Row numbers on a GPU are not inspected, since reading them would synchronise with the GPU.
  const at::Tensor rows = row_indices.to(keys_.device()).contiguous();
  if (table_.defined() && rows.numel() <= keys_.size(0)) {
    table_ = table_.index_select(0, rows);
    return;
  }
  gather();
  // In beam search (search/beam_search.h) most hypotheses stay in their row, so only the rows that move are copied.
  if (const auto moved = keys_.is_cpu() ? in_place_moves(rows, keys_.size(0)) : std::nullopt) {
    const at::Tensor to = at::tensor(moved->first, at::kLong), from = at::tensor(moved->second, at::kLong);
    for (at::Tensor* store : {&keys_, &values_}) {
      at::Tensor used = store->narrow(2, first_, length_);
      if (to.numel() > 0) used.index_copy_(0, to, used.index_select(0, from));
      *store = store->narrow(0, 0, rows.numel());
    }
    return;
  }
  for (at::Tensor* store : {&keys_, &values_}) *store = gather_rows(*store, rows, first_, length_);
  first_ = 0;
}

}  // namespace mh::attention
