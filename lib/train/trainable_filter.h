// Selects the parameters that are trained (train.trainable). An entry is a pattern of parameter names, or a word for
// a set of parameters (nn::HeadRole):
//
//   gates        parameters of stages that weight heads
//   mixing       parameters of stages that mix heads
//   stages       parameters of all attention stages
//   projections  query, key and value projections
//   output       output projections of attention layers
//   attention    all parameters of attention layers
//   head         output head and pooler of an encoder model
#pragma once

#include <string>
#include <vector>

#include "nn/parameter.h"

namespace mh::train {

class TrainableFilter {
 public:
  // `names`: train.trainable; an empty list selects all parameters. Throws Error(usage) about train.trainable for an
  // entry that matches no trainable parameter.
  TrainableFilter(const std::vector<std::string>& names, const nn::ParameterList& parameters);
  // Returns whether train.trainable selects a parameter.
  bool operator()(const nn::Parameter& parameter) const;
  // Returns whether train.trainable is empty and thus selects all parameters.
  bool selects_all() const { return names_.empty(); }

 private:
  std::vector<std::string> names_;
};

}  // namespace mh::train
