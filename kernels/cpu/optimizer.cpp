#include "cpu/optimizer.h"

#include <cmath>

#include "cpu/target.h"

namespace mh::kernels {

MH_VECTOR_LOOP
void adam(const AdamPlan& a, int64_t begin, int64_t end, float* p, const float* g, float* m, float* v) {
  const float step = a.lr / a.correction1, root = std::sqrt(a.correction2);
  for (int64_t i = begin; i < end; ++i) adam_one(a, step, root, p[i], g[i], m[i], v[i]);
}

MH_VECTOR_LOOP
void sgd(const MomentumPlan& a, int64_t begin, int64_t end, float* p, const float* g, float* buffer) {
  for (int64_t i = begin; i < end; ++i) sgd_one(a, p[i], g[i], buffer[i]);
}

MH_VECTOR_LOOP
void nag(const NagPlan& a, int64_t begin, int64_t end, float* p, const float* g, float* buffer) {
  for (int64_t i = begin; i < end; ++i) nag_one(a, p[i], g[i], buffer[i]);
}

MH_VECTOR_LOOP
double squares(const float* x, int64_t begin, int64_t end) {
  constexpr int lanes = 16;
  double lane[lanes] = {};
  int64_t i = begin;
  for (; i + lanes <= end; i += lanes)
    for (int k = 0; k < lanes; ++k) lane[k] += static_cast<double>(x[i + k]) * static_cast<double>(x[i + k]);
  for (; i < end; ++i) lane[0] += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  double sum = 0;
  for (double l : lane) sum += l;
  return sum;
}

}  // namespace mh::kernels
