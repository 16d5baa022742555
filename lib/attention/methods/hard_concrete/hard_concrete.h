// Hard-concrete gates (Louizos et al. 2018; for heads: Voita et al. 2019): random numbers in [0, 1] that are exactly 0
// or 1 with a probability that the learned parameter log a determines:
//   s = σ((log u - log(1 - u) + log a) / t), u uniform;   g = clamp(l + (r - l) s, 0, 1),   l < 0, r > 1.
// Without noise s = σ(log a).
#pragma once

#include "attention/stage.h"

namespace mh::attention {

// Constants of the distribution, with their symbols in the formulas above.
struct HardConcreteDistribution {
  double temperature = 0.33;  // t
  double low = -0.1;          // l
  double high = 1.1;          // r
};

// Name of the combiner in configurations (attention.combiner).
constexpr const char* kHardConcreteName = "hard-concrete";
constexpr const char* kLogAName = ".combiner.log_a";  // name of the parameter log a (hv), without the layer name
struct HardConcreteOptions : OptionsOf<HardConcreteOptions> {
  HardConcreteDistribution distribution;
  double start = 0;
  void describe(Fields& f) override;
};

// Returns the gates for `log_a` and noise `u` of the same shape, uniform in (0, 1). If `u` is undefined, the gates have
// no noise.
at::Tensor hard_concrete_gates(const HardConcreteDistribution& distribution, const at::Tensor& log_a,
                               const at::Tensor& u);

// Returns the expected number of gates that are not 0, a scalar:
// Σ P(g ≠ 0) = Σ σ(log a - t log(-l / r)). The caller multiplies this penalty by a coefficient and adds the product to
// the loss.
at::Tensor hard_concrete_penalty(const HardConcreteDistribution& distribution, const at::Tensor& log_a);

}  // namespace mh::attention
