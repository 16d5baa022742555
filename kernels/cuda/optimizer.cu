#include "cuda/launch.h"
#include "cuda/table.h"

namespace mh::kernels {

namespace {

template <class One>
__global__ void each(int64_t count, One one) {
  const int64_t stride = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += stride) one(i);
}

struct Adam {
  AdamPlan plan;
  float step, root;
  float* p;
  const float* g;
  float *m, *v;
  __device__ void operator()(int64_t i) const { adam_one(plan, step, root, p[i], g[i], m[i], v[i]); }
};

struct Sgd {
  MomentumPlan plan;
  float* p;
  const float* g;
  float* buffer;
  __device__ void operator()(int64_t i) const { sgd_one(plan, p[i], g[i], buffer[i]); }
};

struct Nag {
  NagPlan plan;
  float* p;
  const float* g;
  float* buffer;
  __device__ void operator()(int64_t i) const { nag_one(plan, p[i], g[i], buffer[i]); }
};

template <class One>
const char* launch(int64_t count, const One& one) {
  if (count == 0) return nullptr;
  each<<<blocks_for(count), kThreads>>>(count, one);
  return launched();
}

}  // namespace

const char* cuda_adam(const AdamPlan& plan, int64_t count, float* p, const float* g, float* m, float* v) {
  return launch(count, Adam{plan, plan.lr / plan.correction1, std::sqrt(plan.correction2), p, g, m, v});
}

const char* cuda_sgd(const MomentumPlan& plan, int64_t count, float* p, const float* g, float* buffer) {
  return launch(count, Sgd{plan, p, g, buffer});
}

const char* cuda_nag(const NagPlan& plan, int64_t count, float* p, const float* g, float* buffer) {
  return launch(count, Nag{plan, p, g, buffer});
}

}  // namespace mh::kernels
