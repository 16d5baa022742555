// Dispatches dropout to the kernel for an element type.
#include "cuda/dropout.h"
#include "cuda/launcher.h"

namespace mh::kernels {

const char* cuda_dropout(Dtype dtype, const DropoutRange& range, const void* x, void* y, int64_t count, void* stream) {
  return dispatch_dtype(dtype,
                        [&](auto zero) { return dropout<decltype(zero)>(Launcher{stream}, range, x, y, count); });
}

}  // namespace mh::kernels
