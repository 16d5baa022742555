// Which parameters train at all, where train.trainable names some: by pattern, or by a word for what they are to the
// heads of attention layers (nn::HeadRole), whatever the stages are called:
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
  // No names: all parameters. Error(usage), about train.trainable, for a name that no parameter which trains goes by.
  TrainableFilter(const std::vector<std::string>& names, const nn::ParameterList& parameters);
  bool operator()(const nn::Parameter& parameter) const;
  bool all() const { return names_.empty(); }

 private:
  std::vector<std::string> names_;
};

}  // namespace mh::train
