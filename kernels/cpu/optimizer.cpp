// Computes optimiser updates and sums of squares, and instantiates OptimizerLoops for one instruction set.
#include "cpu/optimizer.h"

#include <cmath>

namespace mh::kernels {

template <Level L>
void OptimizerLoops<L>::adam(const AdamPlan& plan, int64_t begin, int64_t end, float* p, const float* g, float* m,
                             float* v) {
  const float step_size = plan.lr / plan.bias_correction1, bias_correction2_sqrt = std::sqrt(plan.bias_correction2);
  for (int64_t i = begin; i < end; ++i) adam_element(plan, step_size, bias_correction2_sqrt, p[i], g[i], m[i], v[i]);
}

template <Level L>
void OptimizerLoops<L>::sgd(const MomentumPlan& plan, int64_t begin, int64_t end, float* p, const float* g,
                            float* buffer) {
  for (int64_t i = begin; i < end; ++i) sgd_element(plan, p[i], g[i], buffer[i]);
}

template <Level L>
void OptimizerLoops<L>::nag(const NagPlan& plan, int64_t begin, int64_t end, float* p, const float* g, float* buffer) {
  for (int64_t i = begin; i < end; ++i) nag_element(plan, p[i], g[i], buffer[i]);
}

template <Level L>
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

template struct OptimizerLoops<kLevel>;

}  // namespace mh::kernels
