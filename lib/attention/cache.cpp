// Storage of the key/value cache: growth, the row table for in-place decoding, and reordering of rows.
#include "attention/cache.h"

#include <ATen/core/List.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "nn/aten.h"

namespace mh::attention {

// Grows the storage, if necessary, so that the positions of k and v fit after the cached positions.
void Cache::reserve(const at::Tensor& k, const at::Tensor& v) {
  const int64_t num_new_positions = k.size(2);
  if (keys_.defined() && begin_ + length_ + num_new_positions <= keys_.size(2)) return;
  const int64_t capacity = std::max<int64_t>(2 * (length_ + num_new_positions), 64);
  auto grow = [&](at::Tensor& buffer, const at::Tensor& x) {
    at::Tensor new_buffer =
        at::empty({buffer.defined() ? buffer.size(0) : x.size(0), x.size(1), capacity, x.size(3)}, x.options());
    if (length_ > 0) new_buffer.narrow(2, 0, length_).copy_(buffer.narrow(2, begin_, length_));
    buffer = new_buffer;
  };
  grow(keys_, k);
  grow(values_, v);
  if (row_table_.defined()) {
    at::Tensor new_row_table = at::empty({row_table_.size(0), capacity}, row_table_.options());
    new_row_table.narrow(1, 0, length_).copy_(row_table_.narrow(1, begin_, length_));
    row_table_ = new_row_table;
  }
  begin_ = 0;
}

std::pair<at::Tensor, at::Tensor> Cache::append(const at::Tensor& k, const at::Tensor& v) {
  materialise_rows();
  reserve(k, v);
  const int64_t end = begin_ + length_, num_new_positions = k.size(2);
  keys_.narrow(2, end, num_new_positions).copy_(k);
  values_.narrow(2, end, num_new_positions).copy_(v);
  length_ += num_new_positions;
  return keys_and_values();
}

std::pair<at::Tensor, at::Tensor> Cache::keys_and_values() {
  materialise_rows();
  return {keys_.narrow(2, begin_, length_), values_.narrow(2, begin_, length_)};
}

Cache::InPlaceView Cache::append_in_place(const at::Tensor& k, const at::Tensor& v) {
  reserve(k, v);
  const at::Tensor row_ids = at::arange(k.size(0), at::kInt).unsqueeze(1);
  if (!row_table_.defined()) row_table_ = row_ids.repeat({1, keys_.size(2)});
  else row_table_.narrow(1, begin_ + length_, 1).copy_(row_ids);
  keys_.narrow(0, 0, k.size(0)).narrow(2, begin_ + length_, 1).copy_(k);
  values_.narrow(0, 0, v.size(0)).narrow(2, begin_ + length_, 1).copy_(v);
  ++length_;
  return {keys_.narrow(2, begin_, length_), values_.narrow(2, begin_, length_), row_table_.narrow(1, begin_, length_)};
}

// Copies keys and values so that physical row b holds all positions of batch row b, and removes the row table.
void Cache::materialise_rows() {
  if (!row_table_.defined()) return;
  const at::Tensor rows = row_table_.narrow(1, begin_, length_).to(at::kLong),
                   positions = at::arange(begin_, begin_ + length_, at::kLong);
  for (at::Tensor* buffer : {&keys_, &values_})
    *buffer = at::index(buffer->transpose(1, 2), {rows, positions}).transpose(1, 2).contiguous();
  row_table_.reset();
  begin_ = 0;
}

void Cache::retain_last(int64_t num_positions) {
  if (length_ <= num_positions) return;
  begin_ += length_ - num_positions;
  length_ = num_positions;
}

namespace {

// Returns the rows to copy as a pair (destination rows, source rows) if reordering is possible in place, that is, if
// the number of rows does not grow and no source row is overwritten; otherwise std::nullopt.
std::optional<std::pair<std::vector<int64_t>, std::vector<int64_t>>> in_place_moves(const at::Tensor& rows,
                                                                                    int64_t old_num_rows) {
  const int64_t new_num_rows = rows.numel();
  const auto* sources = rows.const_data_ptr<int64_t>();
  std::pair<std::vector<int64_t>, std::vector<int64_t>> moves;
  if (new_num_rows > old_num_rows) return std::nullopt;
  for (int64_t i = 0; i < new_num_rows; ++i) {
    if (sources[i] == i) continue;
    if (sources[i] < new_num_rows && sources[sources[i]] != sources[i]) return std::nullopt;
    moves.first.push_back(i);
    moves.second.push_back(sources[i]);
  }
  return moves;
}

// Returns a tensor (B', h, capacity, size) whose row i is row rows[i] of `buffer` (P, h, capacity, size); `rows`: (B').
// Copies only the positions [begin, begin + length), to the positions [0, length).
at::Tensor gather_rows(const at::Tensor& buffer, const at::Tensor& rows, int64_t begin, int64_t length) {
  auto sizes = buffer.sizes().vec();
  sizes[0] = rows.numel();
  at::Tensor new_buffer = at::empty(sizes, buffer.options());
  at::Tensor destination = new_buffer.narrow(2, 0, length);
  at::index_select_out(destination, buffer.narrow(2, begin, length), 0, rows);
  return new_buffer;
}

}  // namespace

void Cache::reorder_stage_states(const at::Tensor& old_rows) { stage_states_.reorder(old_rows); }

void Cache::reorder(const at::Tensor& old_rows) {
  reorder_stage_states(old_rows);
  reorder_keys_and_values(old_rows);
}

void Cache::reorder_keys_and_values(const at::Tensor& old_rows) {
  if (length_ == 0 || !keys_.defined()) return;
  // On a GPU the host does not read the row indices, since reading them would synchronise with the GPU.
  const at::Tensor rows = old_rows.to(keys_.device()).contiguous();
  if (row_table_.defined() && rows.numel() <= keys_.size(0)) {
    row_table_ = row_table_.index_select(0, rows);
    return;
  }
  materialise_rows();
  // In beam search (search/beam_search.h) most hypotheses stay in their row, so only the rows that move are copied.
  if (const auto moves = keys_.is_cpu() ? in_place_moves(rows, keys_.size(0)) : std::nullopt) {
    const at::Tensor destinations = at::tensor(moves->first, at::kLong), sources = at::tensor(moves->second, at::kLong);
    for (at::Tensor* buffer : {&keys_, &values_}) {
      at::Tensor used_positions = buffer->narrow(2, begin_, length_);
      if (destinations.numel() > 0)
        used_positions.index_copy_(0, destinations, used_positions.index_select(0, sources));
      *buffer = buffer->narrow(0, 0, rows.numel());
    }
    return;
  }
  for (at::Tensor* buffer : {&keys_, &values_}) *buffer = gather_rows(*buffer, rows, begin_, length_);
  begin_ = 0;
}

}  // namespace mh::attention
