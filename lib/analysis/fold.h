// Folds combiners that are a linear map across heads into the output projection, so that head outputs side by side are
// left: with Z'_i = Σ_j m[j, i] Z_j and W^O in blocks of dv columns, one for each head,
//
//   Σ_i W_i Z'_i = Σ_j W'_j Z_j,      W'_j = Σ_i m[j, i] W_i
//
// Azov & Landau 2020 write it W^O' = (αᵀ ⊗ I) W^O, for α = mᵀ and the transposed projection. What a combiner does in
// training alone, such as dropping heads, is gone with it.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <vector>

#include "model/model_config.h"

namespace mh::analysis {

// m (hv, ho), W (d, ho dv) -> W' (d, hv dv), sums in double.
at::Tensor fold(const at::Tensor& matrix, const at::Tensor& weight);

struct FoldedModel {
  model::ModelConfig config;
  std::unique_ptr<model::LanguageModel> model;
  std::vector<std::string> layers;  // those that have changed
};

// All layers that can be folded; Error(usage), about `where`, for a model that has none.
FoldedModel fold_combiners(const model::ModelConfig& config, model::LanguageModel& model, const std::string& where);

}  // namespace mh::analysis
