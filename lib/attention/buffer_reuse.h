// Decides whether an operation may overwrite its input instead of allocating a second large tensor.
#pragma once

#include <ATen/core/Tensor.h>

namespace mh::attention {

// Returns whether x is dense and has the only reference to its storage, so that the caller may write a result of the
// same size into the storage. A gradient that an observer retains (retain_grad) has a second reference. A view and its
// base tensor count as one reference if only the view refers to the base tensor.
inline bool can_reuse_storage(const at::Tensor& x) {
  if (!x.has_storage() || x.use_count() != 1 || !x.is_non_overlapping_and_dense()) return false;
  const size_t num_references = x.storage().use_count();
  return num_references == 1 || (num_references == 2 && x.is_view() && x._base().use_count() == 1);
}

}  // namespace mh::attention
