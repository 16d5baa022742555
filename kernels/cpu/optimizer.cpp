#include "cpu/optimizer.h"

#include <cmath>

#include "cpu/target.h"

namespace mh::kernels {

MH_VECTOR_LOOP
void adam(const AdamPlan& a, int64_t begin, int64_t end, float* p, const float* g, float* m, float* v) {
  const float step = a.lr / a.correction1;
  const float root = std::sqrt(a.correction2);
  for (int64_t i = begin; i < end; ++i) {
    const float gradient = a.scale * g[i];
    m[i] = a.beta1 * m[i] + (1 - a.beta1) * gradient;
    v[i] = a.beta2 * v[i] + (1 - a.beta2) * gradient * gradient;
    p[i] = p[i] - a.decay * p[i] - step * m[i] / (std::sqrt(v[i]) / root + a.epsilon);
  }
}

MH_VECTOR_LOOP
void sgd(const MomentumPlan& a, int64_t begin, int64_t end, float* p, const float* g, float* buffer) {
  for (int64_t i = begin; i < end; ++i) {
    buffer[i] = a.momentum * buffer[i] + a.scale * g[i] + a.decay * p[i];
    p[i] -= a.lr * buffer[i];
  }
}

MH_VECTOR_LOOP
void nag(const NagPlan& a, int64_t begin, int64_t end, float* p, const float* g, float* buffer) {
  const float m = a.momentum;
  for (int64_t i = begin; i < end; ++i) {
    const float gradient = a.scale * g[i];
    p[i] = p[i] * (1 - a.decay) + m * m * a.correction * buffer[i] - (1 + m) * a.lr * gradient;
    buffer[i] = m * a.correction * buffer[i] - a.lr * gradient;
  }
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
