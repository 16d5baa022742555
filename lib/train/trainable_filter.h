// Selects the parameters that are trained (train.trainable). An entry is a pattern of parameter names, or one of
// trainable_words().
#pragma once

#include <string>
#include <vector>

#include "nn/parameter.h"

namespace mh::train {

// A word in train.trainable that selects a set of parameters.
struct TrainableWord {
  const char* name;
  const char* meaning;              // description for `mh-train --list trainable` and mh-finetune(1)
  std::vector<nn::HeadRole> roles;  // roles of parameters in attention layers; empty: the task head and its pooler
};
// Returns the word "head", then the other words in alphabetical order.
const std::vector<TrainableWord>& trainable_words();
// Returns the words, separated by commas, for help texts and errors: "head, attention, ...".
std::string trainable_words_text();

class TrainableFilter {
 public:
  // `entries`: train.trainable; an empty list selects all parameters. Throws Error(usage) about train.trainable for an
  // entry that matches no trainable parameter.
  TrainableFilter(const std::vector<std::string>& entries, const nn::ParameterList& parameters);
  // Returns whether train.trainable selects a parameter.
  bool operator()(const nn::Parameter& parameter) const;
  // Returns whether train.trainable is empty and thus selects all parameters.
  bool selects_all() const { return entries_.empty(); }

 private:
  std::vector<std::string> entries_;
};

}  // namespace mh::train
