// The key/value cache of one attention layer for incremental decoding.
#pragma once

#include <ATen/core/Tensor.h>

#include <utility>

#include "attention/stage.h"

namespace mh::attention {

// Keys and values, (B, h, length, size) each. In cross-attention they are made once from the encoder's output.
class Cache {
 public:
  int64_t length() const { return length_; }
  // Appends k and v and returns all of both.
  std::pair<at::Tensor, at::Tensor> append(const at::Tensor& k, const at::Tensor& v);
  std::pair<at::Tensor, at::Tensor> all();
  void pass(int64_t positions) { length_ += positions; }  // of a layer without heads, which keeps nothing of them
  // Row i is what was row rows[i], (B') int64; the second of what stages keep alone, the third of the rest.
  void reorder(const at::Tensor& rows);
  void reorder_state(const at::Tensor& rows);
  void reorder_rows(const at::Tensor& rows);
  void keep_last(int64_t positions);  // forgets the older ones; what stages keep stays
  StageState& state() { return state_; }

  // Its storage on a CPU, for a kernel that reads each position where it was written: as long as nobody asks for
  // tensors of the rows, reorder_rows copies nothing but the table.
  struct InPlace {
    at::Tensor keys, values;  // (P, h, length, size), P no fewer than B
    at::Tensor rows;          // (B, length) int32: position t of row b is in row rows[b, t]
  };
  // Adds one position for keys and values like k and v (B, h, 1, size), which the caller is to write: row b writes its
  // position to row b.
  InPlace extend(const at::Tensor& k, const at::Tensor& v);

 private:
  void reserve(const at::Tensor& k, const at::Tensor& v);
  void gather();

  at::Tensor keys_, values_;        // with room to grow
  at::Tensor table_;                // (B, as keys_) int32, or undefined: each row holds its own
  int64_t first_ = 0, length_ = 0;  // the positions that count among them
  StageState state_;
};

}  // namespace mh::attention
