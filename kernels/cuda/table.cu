#include "cuda/table.h"

namespace mh::kernels {

const char* cuda_dropout_f32(const Dropout&, uint64_t, const float*, float*, int64_t);
const char* cuda_dropout_bf16(const Dropout&, uint64_t, const uint16_t*, uint16_t*, int64_t);
const char* cuda_adam(const AdamPlan&, int64_t, float*, const float*, float*, float*);
const char* cuda_sgd(const MomentumPlan&, int64_t, float*, const float*, float*);
const char* cuda_nag(const NagPlan&, int64_t, float*, const float*, float*);
const AttentionKernels* cuda_attention(Dtype, int);
const char* cuda_lacks(Dtype, int);

}  // namespace mh::kernels

extern "C" __attribute__((visibility("default"))) const mh::kernels::CudaTable* multihead_cuda_table() {
  using namespace mh::kernels;
  static const CudaTable table{cuda_dropout_f32, cuda_dropout_bf16, cuda_adam, cuda_sgd,
                               cuda_nag,         cuda_attention,    cuda_lacks};
  return &table;
}
