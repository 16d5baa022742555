// Computes optimiser updates and sums of squares, and instantiates OptimizerLoops for one instruction set.
#include "cpu/optimizer.h"

#include <cmath>

namespace mh::kernels {

template <SimdLevel L>
void OptimizerLoops<L>::adam(const AdamParams& params, int64_t begin, int64_t end, float* p, const float* g, float* m,
                             float* v) {
  const float step_size = params.lr / params.bias_correction1,
              bias_correction2_sqrt = std::sqrt(params.bias_correction2);
  for (int64_t i = begin; i < end; ++i) adam_element(params, step_size, bias_correction2_sqrt, p[i], g[i], m[i], v[i]);
}

template <SimdLevel L>
void OptimizerLoops<L>::sgd(const MomentumParams& params, int64_t begin, int64_t end, float* p, const float* g,
                            float* buffer) {
  for (int64_t i = begin; i < end; ++i) sgd_element(params, p[i], g[i], buffer[i]);
}

template <SimdLevel L>
void OptimizerLoops<L>::nag(const NagParams& params, int64_t begin, int64_t end, float* p, const float* g,
                            float* buffer) {
  for (int64_t i = begin; i < end; ++i) nag_element(params, p[i], g[i], buffer[i]);
}

template <SimdLevel L>
double OptimizerLoops<L>::sum_of_squares(const float* x, int64_t begin, int64_t end) {
  constexpr int lanes = 16;
  double lane_sums[lanes] = {};
  int64_t i = begin;
  for (; i + lanes <= end; i += lanes)
    for (int k = 0; k < lanes; ++k) lane_sums[k] += static_cast<double>(x[i + k]) * static_cast<double>(x[i + k]);
  for (; i < end; ++i) lane_sums[0] += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  double sum = 0;
  for (double l : lane_sums) sum += l;
  return sum;
}

template struct OptimizerLoops<kSimdLevel>;

}  // namespace mh::kernels
