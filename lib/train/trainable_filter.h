// Selects the trainable parameters by train.trainable: patterns of names, or words for the role of a parameter in
// attention heads (nn::HeadRole):
//
//   gates        of stages that weigh heads        projections  of queries, keys and values
//   mixing       of stages that mix heads          output       of the layer's output
//   stages       of all stages                     attention    all of attention layers
//   head         of an encoder, with its pooler
#pragma once

#include <string>
#include <vector>

#include "nn/parameter.h"

namespace mh::train {

class TrainableFilter {
 public:
  // Without names, all parameters train. Throws Error(usage) about train.trainable for a name that matches no trainable
  // parameter.
  TrainableFilter(const std::vector<std::string>& names, const nn::ParameterList& parameters);
  bool operator()(const nn::Parameter& parameter) const;
  bool all() const { return names_.empty(); }

 private:
  std::vector<std::string> names_;
};

}  // namespace mh::train
