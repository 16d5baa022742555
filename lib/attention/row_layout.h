// How tensors (B, h, T, d) lie in memory, as the operations on heads read and write them.
#pragma once

#include <ATen/ATen.h>

namespace mh::attention {

// x, or a copy of it whose rows (d) are without gaps, and less than 2^31 elements apart.
inline at::Tensor with_contiguous_rows(const at::Tensor& x) {
  return (x.size(3) == 1 || x.stride(3) == 1) && x.stride(2) < int64_t{1} << 31 ? x : x.contiguous();
}

// A new tensor (B, heads, length, size) of like's rows and type, stored as (B, length, heads, size), so that joining
// the heads needs no copy.
inline at::Tensor by_position(const at::Tensor& like, int64_t heads, int64_t length, int64_t size) {
  return at::empty({like.size(0), length, heads, size}, like.options()).transpose(1, 2);
}

}  // namespace mh::attention
