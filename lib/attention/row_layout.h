// Memory layouts of tensors (B, h, T, d) that kernels read and write.
#pragma once

#include <vector>

#include "nn/aten.h"

namespace mh::attention {

// Returns x if each row x[b, h, t] (d elements) is contiguous and the row stride is below 2^31 elements; otherwise a
// contiguous copy.
inline at::Tensor with_contiguous_rows(const at::Tensor& x) {
  return (x.size(3) == 1 || x.stride(3) == 1) && x.stride(2) < int64_t{1} << 31 ? x : x.contiguous();
}

// Allocates a tensor (B, num_heads, length, size) with the batch size, type and device of `like`, stored as
// (B, length, num_heads, size), so that concatenating the heads needs no copy.
inline at::Tensor allocate_by_position(const at::Tensor& like, int64_t num_heads, int64_t length, int64_t size) {
  return at::empty({like.size(0), length, num_heads, size}, like.options()).transpose(1, 2);
}

// Returns whether the tensors (B, h_i, T, d_i) are slices, adjacent in this order, of the rows of one tensor
// (B, T, Σ h_i d_i), the layout of a joint projection.
inline bool are_adjacent_slices(const std::vector<at::Tensor>& slices) {
  const at::Tensor& first = slices.front();
  int64_t width = 0, offset = first.storage_offset();
  for (const at::Tensor& x : slices) width += x.size(1) * x.size(3);
  for (const at::Tensor& x : slices) {
    if (!x.is_alias_of(first) || x.size(2) != first.size(2) || x.storage_offset() != offset ||
        x.strides() != at::IntArrayRef({x.size(2) * width, x.size(3), width, 1}))
      return false;
    offset += x.size(1) * x.size(3);
  }
  return true;
}

}  // namespace mh::attention
