// The key/value cache of one attention layer for incremental decoding.
#pragma once

#include <ATen/core/Tensor.h>

#include <utility>

#include "attention/stage.h"

namespace mh::attention {

// Keys (B, h, length, dk) and values (B, hv, length, dv). Self-attention appends the positions of each step;
// cross-attention stores the keys and values of the encoder output in the first step.
class Cache {
 public:
  int64_t length() const { return length_; }
  // Appends k (B, h, n, dk) and v (B, hv, n, dv), and returns all cached keys and values.
  std::pair<at::Tensor, at::Tensor> append(const at::Tensor& k, const at::Tensor& v);
  // Returns all cached keys (B, h, length, dk) and values (B, hv, length, dv). If a row table exists, first copies the
  // positions of each batch row into one physical row.
  std::pair<at::Tensor, at::Tensor> keys_and_values();
  void skip(int64_t num_positions) { length_ += num_positions; }  // increases length() only, for a layer without heads
  // Reorders the batch rows of keys, values and stage states for beam search: new row i is the former row old_rows[i],
  // for old_rows (B') int64.
  void reorder(const at::Tensor& old_rows);
  // Reorders the batch rows of the stage states only: new row i is the former row old_rows[i].
  void reorder_stage_states(const at::Tensor& old_rows);
  // Reorders the batch rows of keys and values only: new row i is the former row old_rows[i].
  void reorder_keys_and_values(const at::Tensor& old_rows);
  void retain_last(int64_t num_positions);  // drops all older keys and values; stage states are unchanged
  StageStates& stage_states() { return stage_states_; }

  // View of the cached keys and values on a CPU, for decoding kernels that read each position through a row table.
  // While the table exists, reorder_keys_and_values() reorders the table and copies no keys and values. If there are
  // more new batch rows than physical rows, the function instead copies keys and values and removes the table, as
  // append() and keys_and_values() do.
  struct InPlaceView {
    at::Tensor keys, values;  // (P, h, length, dk) and (P, hv, length, dv), P >= B physical rows
    at::Tensor row_table;     // (B, length) int32: position t of batch row b is in physical row row_table[b, t]
  };
  // Appends one position, k (B, h, 1, dk) and v (B, hv, 1, dv), and returns a view that includes this position. The new
  // key and value of batch row b are in physical row b.
  InPlaceView append_in_place(const at::Tensor& k, const at::Tensor& v);

 private:
  void reserve(const at::Tensor& k, const at::Tensor& v);
  void materialise_rows();

  at::Tensor keys_, values_;        // (P, h, capacity, dk), (P, hv, capacity, dv)
  at::Tensor row_table_;            // (B, capacity) int32 row table; undefined: batch row b is physical row b
  int64_t begin_ = 0, length_ = 0;  // positions [begin_, begin_ + length_) of the storage are in use
  StageStates stage_states_;
};

}  // namespace mh::attention
