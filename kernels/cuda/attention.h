// What the attention kernels of a GPU are given. Nothing here knows CUDA, so that its caller need not.
#pragma once

#include <cstdint>

#include "dropout_plan.h"
#include "policy.h"

namespace mh::kernels {

// (batch, heads, length, size) of any strides; elements of a row are contiguous.
template <class T>
struct Rows {
  T* data;
  int64_t batch, head, position;
};

// Policy's pointers are to device memory, but for `dropout`, of which only that it is there matters.
struct AttentionCall : Policy {
  int heads = 0;                         // of the result, each of which reads a head of keys and one of values
  int key_size = 0, value_size = 0;      // of a query or key; of a value. As compiled, or less
  Dropout dropping = {};                 // what `dropout` points to; dropout_first is of row 0, head 0
  const int64_t* key_lengths = nullptr;  // (batch), or null: only so many keys of a row are real
  int dropout_heads = 0;                 // of a row, by which elements of the stream are counted
  int64_t scales_row = 0;                // head_scales[row * scales_row + head]
  bool aligned = false;                  // every row of q, k, v and their gradients begins at a multiple of 16 bytes
};

struct KeyRange {
  int first, end;
};

}  // namespace mh::kernels
