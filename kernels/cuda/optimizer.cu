#include "cuda/launcher.h"
#include "cuda/optimizer_updates.h"

namespace mh::kernels {

const char* cuda_adam(const Update<AdamPlan>* all, int64_t count, void* stream) {
  return update(Launcher{stream}, all, count);
}
const char* cuda_sgd(const Update<MomentumPlan>* all, int64_t count, void* stream) {
  return update(Launcher{stream}, all, count);
}
const char* cuda_nag(const Update<NagPlan>* all, int64_t count, void* stream) {
  return update(Launcher{stream}, all, count);
}
const char* cuda_squares(const Numbers* all, int64_t count, double* sums, void* stream) {
  return squares(Launcher{stream}, all, count, sums);
}

}  // namespace mh::kernels
