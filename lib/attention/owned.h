// Whether a gradient may be written over.
#pragma once

#include <ATen/core/Tensor.h>

namespace mh::attention {

// Nobody else holds this gradient or its memory, so a backward pass may put its own result there: the largest tensors
// of a layer then need no second copy. An observer that retained it holds it too. A view holds the tensor it is of.
inline bool owned(const at::Tensor& gradient) {
  if (!gradient.has_storage() || gradient.use_count() != 1 || !gradient.is_non_overlapping_and_dense()) return false;
  const size_t holders = gradient.storage().use_count();
  return holders == 1 || (holders == 2 && gradient.is_view() && gradient._base().use_count() == 1);
}

}  // namespace mh::attention
