// Memory layouts of tensors (B, h, T, d) that kernels read and write.
#pragma once

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

}  // namespace mh::attention
