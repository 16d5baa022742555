// Dispatches dropout to the kernels of a type.
#include "cuda/dropout.h"
#include "cuda/launcher.h"

namespace mh::kernels {

const char* cuda_dropout(Dtype type, const DropoutParams& params, uint64_t stream_offset, const void* x, void* y,
                         int64_t count, void* stream) {
  return dispatch_dtype(type, [&](auto number) {
    return dropout<decltype(number)>(Launcher{stream}, params, stream_offset, x, y, count);
  });
}

}  // namespace mh::kernels
