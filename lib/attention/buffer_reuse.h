// Decides whether an operation may overwrite a tensor in place instead of allocating a second large tensor.
#pragma once

#include <ATen/core/Tensor.h>

namespace mh::attention {

// Returns whether `gradient` has the only reference to its storage, so that the caller may write a result of the same
// size into it. A gradient that an observer retains (retain_grad) has a second reference. A view may share its storage
// with its base tensor if the view has the only reference to this base.
inline bool can_reuse_storage(const at::Tensor& gradient) {
  if (!gradient.has_storage() || gradient.use_count() != 1 || !gradient.is_non_overlapping_and_dense()) return false;
  const size_t num_references = gradient.storage().use_count();
  return num_references == 1 || (num_references == 2 && gradient.is_view() && gradient._base().use_count() == 1);
}

}  // namespace mh::attention
