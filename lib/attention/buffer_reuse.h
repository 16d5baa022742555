// Tests whether a backward pass may overwrite a gradient in place.
#pragma once

#include <ATen/core/Tensor.h>

namespace mh::attention {

// Returns whether nothing else references this gradient or its storage, so that a backward pass may write its result
// there: the largest tensors of a layer then need no second copy. An observer that retained the gradient counts as a
// reference. If the gradient is a view, its base may be the other holder of the storage.
inline bool can_reuse_storage(const at::Tensor& gradient) {
  if (!gradient.has_storage() || gradient.use_count() != 1 || !gradient.is_non_overlapping_and_dense()) return false;
  const size_t references = gradient.storage().use_count();
  return references == 1 || (references == 2 && gradient.is_view() && gradient._base().use_count() == 1);
}

}  // namespace mh::attention
