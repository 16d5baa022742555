// Hard-concrete gates (Louizos et al. 2018; of heads: Voita et al. 2019): random numbers in [0, 1] that are exactly 0
// or 1 with a learned probability, which the parameter log a determines:
//   s = σ((log u - log(1 - u) + log a) / t), u uniform;   g = clamp(l + (r - l) s, 0, 1),   l < 0, r > 1.
// Without noise s = σ(log a).
#pragma once

#include "attention/stage.h"

namespace mh::attention {

struct HardConcrete {
  double temperature = 0.33;  // t
  double low = -0.1;          // l
  double high = 1.1;          // r
};

// The name and the options of the combiner.
constexpr const char* kHardConcrete = "hard-concrete";
struct HardConcreteOptions : OptionsOf<HardConcreteOptions> {
  HardConcrete how;
  double start = 0;
  void describe(Fields& f) override;
};

// Returns gates for log_a and u of the same shape; u undefined: without noise.
at::Tensor hard_concrete(const HardConcrete& how, const at::Tensor& log_a, const at::Tensor& u);

// Returns the penalty that closes gates: the expected number of gates that are not 0, Σ P(g ≠ 0) = Σ σ(log a - t
// log(-l / r)). The caller multiplies it by a coefficient and adds it to the loss.
at::Tensor hard_concrete_penalty(const HardConcrete& how, const at::Tensor& log_a);

}  // namespace mh::attention
