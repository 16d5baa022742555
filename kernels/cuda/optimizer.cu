// Instantiates the kernels of optimiser updates and of sums of squares.
#include "cuda/launcher.h"
#include "cuda/optimizer_updates.h"

namespace mh::kernels {

const char* cuda_adam(const Update<AdamParams>* updates, int64_t count, void* stream) {
  return update(Launcher{stream}, updates, count);
}
const char* cuda_sgd(const Update<MomentumParams>* updates, int64_t count, void* stream) {
  return update(Launcher{stream}, updates, count);
}
const char* cuda_nag(const Update<NagParams>* updates, int64_t count, void* stream) {
  return update(Launcher{stream}, updates, count);
}
const char* cuda_sum_of_squares(const FloatSpan* spans, int64_t count, double* sums, void* stream) {
  return sum_of_squares(Launcher{stream}, spans, count, sums);
}

}  // namespace mh::kernels
