// Multi-head mixing (Landau et al. 2020) adds no expressivity: its matrix folds into the output projection.
#pragma once

#include <ATen/core/Tensor.h>

namespace mh::attention {

// alpha (ho, hv), output weight (d, ho dv) -> W' (d, hv dv), so that W' concat(Z) = W concat(Z') with Z'_i = Σ_j α[i,
// j] Z_j; in the paper's orientation W'ᵀ = (αᵀ ⊗ I) Wᵀ.
at::Tensor fold_alphas(const at::Tensor& alpha, const at::Tensor& weight);

}  // namespace mh::attention
