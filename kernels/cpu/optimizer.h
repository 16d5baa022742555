// Optimiser updates in one pass over memory, on [begin, end) of arrays of equal length.
#pragma once

#include "cpu/simd.h"
#include "optimizer_rules.h"

namespace mh::kernels {

template <Level>
struct OptimizerLoops {
  static void adam(const AdamPlan& plan, int64_t begin, int64_t end, float* p, const float* g, float* m, float* v);
  static void sgd(const MomentumPlan& plan, int64_t begin, int64_t end, float* p, const float* g, float* buffer);
  static void nag(const NagPlan& plan, int64_t begin, int64_t end, float* p, const float* g, float* buffer);
  static double squares(const float* x, int64_t begin, int64_t end);
};

inline void adam(const AdamPlan& plan, int64_t begin, int64_t end, float* p, const float* g, float* m, float* v) {
  at_level([&](auto at) { OptimizerLoops<at>::adam(plan, begin, end, p, g, m, v); });
}
inline void sgd(const MomentumPlan& plan, int64_t begin, int64_t end, float* p, const float* g, float* buffer) {
  at_level([&](auto at) { OptimizerLoops<at>::sgd(plan, begin, end, p, g, buffer); });
}
inline void nag(const NagPlan& plan, int64_t begin, int64_t end, float* p, const float* g, float* buffer) {
  at_level([&](auto at) { OptimizerLoops<at>::nag(plan, begin, end, p, g, buffer); });
}

// Returns the sum of squares, in fp64.
inline double squares(const float* x, int64_t begin, int64_t end) {
  return at_level([&](auto at) { return OptimizerLoops<at>::squares(x, begin, end); });
}

}  // namespace mh::kernels
