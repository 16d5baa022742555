// The key/value cache of one attention layer for incremental decoding.
#pragma once

#include <ATen/core/Tensor.h>

#include <utility>

#include "attention/stage.h"

namespace mh::attention {

// Stores keys (B, h, length, dk) and values (B, hv, length, dv). In cross-attention both are computed once, from the
// encoder's output.
class Cache {
 public:
  int64_t length() const { return length_; }
  // Appends k and v and returns all cached keys and values.
  std::pair<at::Tensor, at::Tensor> append(const at::Tensor& k, const at::Tensor& v);
  // Returns all cached keys and values, gathered so that each row holds its own.
  std::pair<at::Tensor, at::Tensor> all();
  void pass(int64_t positions) { length_ += positions; }  // counts without storing: for a layer without heads
  // Reorders the rows, as beam search does: new row i is old row rows[i], rows (B') int64. reorder_state() reorders
  // only the state of the stages, reorder_rows() only keys and values.
  void reorder(const at::Tensor& rows);
  void reorder_state(const at::Tensor& rows);
  void reorder_rows(const at::Tensor& rows);
  void keep_last(int64_t positions);  // drops all but the last ones; the stages' state is unchanged
  StageState& state() { return state_; }

  // The storage on a CPU with its row table, for kernels that read each position through the table. Until append() or
  // all() is called, reorder_rows() copies only the table, unless the number of rows grows.
  struct InPlace {
    at::Tensor keys, values;  // (P, h, length, size), P >= B physical rows
    at::Tensor rows;          // (B, length) int32: position t of row b is stored in physical row rows[b, t]
  };
  // Appends one position for keys and values shaped like k and v (B, h, 1, size) and returns the storage. The caller
  // writes the new position of row b to physical row b.
  InPlace extend(const at::Tensor& k, const at::Tensor& v);

 private:
  void reserve(const at::Tensor& k, const at::Tensor& v);
  void gather();

  at::Tensor keys_, values_;        // (P, h, capacity, size)
  at::Tensor table_;                // (B, capacity) int32 row table; undefined: physical row b holds all of row b
  int64_t first_ = 0, length_ = 0;  // positions [first_, first_ + length_) of the storage are in use
  StageState state_;
};

}  // namespace mh::attention
