// Differential attention (Ye et al. 2024) as two stages. Heads 2i and 2i + 1 form a pair: each has its own queries and
// keys, and both read the concatenation of their values. A pair attends with the difference of its two softmaxes,
//   (P_2i - λ P_2i+1) [V_2i, V_2i+1],   λ = exp(λq1 · λk1) - exp(λq2 · λk2) + λ_init,
// which is Mixhead A with a matrix of fixed structure (mixer_differential.cpp). Then the output of each pair is divided
// by its root mean square and multiplied by a learned weight and by 1 - λ_init (combiner_pair_norm.cpp).
#pragma once

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "attention/stage.h"

namespace mh::attention {

// Returns λ_init of layer `layer`, counted from 0.
inline double lambda_init(int64_t layer) { return 0.8 - 0.6 * std::exp(-0.3 * static_cast<double>(layer)); }

// Throws Error(usage), naming `stage`, unless `heads` contains both heads or neither head of each pair. `heads`: the
// heads that remain after pruning, ascending.
void require_whole_pairs(const std::vector<int64_t>& heads, const LayerSpec& layer_spec, const std::string& stage);

}  // namespace mh::attention
