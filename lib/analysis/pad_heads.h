// Pads the heads of a model with zeros to a larger head size without a change of its outputs. Fixhead (Bhojanapalli et
// al. 2020), which chooses the head size independently of width and number of heads, shows in this way that multi-head
// attention with a smaller head size is a special case of it.
//
// For the padded head size N, each head's columns of W^Q, W^K, W^V and their biases get zeros up to N, and so do the
// rows of W^O, so that q · k and Σ_i Z_i W^O_i keep their terms. The paper multiplies W^Q by √(N / dk), since its
// logits have the factor 1/√N; here the factor 1/√dk becomes the option attention.scale, and no weight changes. Longer
// dot products may be summed in another order, so outputs differ by rounding.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>

#include "model/model_config.h"

namespace mh::analysis {

// Divides an axis of x into `num_blocks` consecutive blocks of equal size, and returns x with zeros at the end of each
// block. `size`: number of elements of the axis of the result, a multiple of `num_blocks`.
at::Tensor pad_blocks(const at::Tensor& x, int64_t axis, int64_t num_blocks, int64_t size);

struct PaddedModel {
  model::ModelConfig config;
  std::unique_ptr<model::LanguageModel> model;
  int64_t num_layers = 0;  // number of layers whose heads were padded
};

// Returns a copy of the model in which the queries, keys and values of every head have `head_size` elements. Throws
// Error(usage), whose message begins with `where`, if the model has no heads, if a head is larger, or if all heads have
// this size; also throws Error(usage) if zeros would change the results of a stage
// (attention::Stage::options_after_padding).
PaddedModel pad_heads(const model::ModelConfig& config, model::LanguageModel& model, int64_t head_size,
                      const std::string& where);

}  // namespace mh::analysis
