// Folds combiners that are a linear map across heads into the output projection. The combiners after the last combiner
// that is no such map fold; the combiners before them stay, and without any the layer concatenates heads. For the
// product m of the folded matrices, Z'_i = Σ_j m[j, i] Z_j and the columns of W^O split into one block W_i of dv
// columns per head,
//
//   Σ_i W_i Z'_i = Σ_j W'_j Z_j,      W'_j = Σ_i m[j, i] W_i
//
// Azov & Landau 2020 write this equation as W^O' = (αᵀ ⊗ I) W^O, with α = mᵀ and W^O transposed. Operations of the
// combiner that are active only in training, such as DropHead, are lost.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <vector>

#include "model/model_config.h"

namespace mh::analysis {

// Returns W' (d, hv dv) for `matrix` m (hv, ho) and `weight` W (d, ho dv), accumulated in fp64.
at::Tensor fold_matrix(const at::Tensor& matrix, const at::Tensor& weight);

struct FoldedModel {
  model::ModelConfig config;
  std::unique_ptr<model::LanguageModel> model;
  std::vector<std::string> layer_names;  // names of the folded layers
};

// Returns a copy of the model in which the last combiners of each layer that are one matrix for all inputs are folded
// (AttentionLayer::as_linear_map). Throws Error(usage) that names the option `where` if no layer ends in such a
// combiner.
FoldedModel fold_combiners(const model::ModelConfig& config, model::LanguageModel& model, const std::string& where);

}  // namespace mh::analysis
