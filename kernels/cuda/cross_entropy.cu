// Dispatches cross-entropy to the kernel for an element type.
#include "cuda/cross_entropy.h"
#include "cuda/launcher.h"

namespace mh::kernels {

const char* cuda_cross_entropy(Dtype dtype, const CrossEntropyParams& params, int64_t rows, void* logits,
                               const int64_t* targets, CrossEntropyLoss* losses, void* stream) {
  return dispatch_dtype(dtype, [&](auto zero) {
    return cross_entropy<decltype(zero)>(Launcher{stream}, params, rows, logits, targets, losses);
  });
}

}  // namespace mh::kernels
