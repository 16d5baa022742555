// Whether a gradient may be written over.
#pragma once

#include <ATen/core/Tensor.h>

namespace mh::attention {

// Nobody else holds this gradient or its memory, so a backward pass may put its own result there: the largest tensors
// of a layer then need no second copy. An observer that retained it holds it too.
inline bool owned(const at::Tensor& gradient) {
  return gradient.use_count() == 1 && gradient.has_storage() && gradient.storage().use_count() == 1 &&
         gradient.is_non_overlapping_and_dense();
}

}  // namespace mh::attention
