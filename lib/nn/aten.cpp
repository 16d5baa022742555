#include "nn/aten.h"

#include <ATen/core/IListRef.h>
#include <ATen/ops/cat.h>

namespace mh::nn {

at::Tensor cat(at::TensorList tensors, int64_t axis) { return at::cat(tensors, axis); }

}  // namespace mh::nn
