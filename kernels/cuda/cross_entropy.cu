// Dispatches cross-entropy to the kernels of a type.
#include "cuda/cross_entropy.h"
#include "cuda/launcher.h"

namespace mh::kernels {

const char* cuda_cross_entropy(Dtype type, const CrossEntropyParams& params, int64_t rows, void* logits,
                               const int64_t* targets, CrossEntropyLoss* losses, void* stream) {
  return dispatch_dtype(type, [&](auto number) {
    return cross_entropy<decltype(number)>(Launcher{stream}, params, rows, logits, targets, losses);
  });
}

}  // namespace mh::kernels
