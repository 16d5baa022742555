// A model that begins with the parameters of another one and has more: stages in its attention layers, another head.
#pragma once

#include <string>
#include <vector>

#include "io/checkpoint.h"
#include "model/load.h"

namespace mh::model {

struct Adoption {
  std::vector<std::string> added;     // parameters that the checkpoint lacks, or has for another number of classes
  std::vector<std::string> left_out;  // tensors of the checkpoint that this model has no use for
};

// What adopt_parameters() would do. Only stages of attention layers and the pooler and head of an encoder may be added,
// and only the latter left out. Error(usage), about the option `where`, for any other parameter, by name, that is
// missing, unknown or of another shape.
Adoption adoption_of(const io::Checkpoint& checkpoint, const nn::ParameterList& parameters, const std::string& where);

// Whether a parameter is one of the pooler and head of an encoder.
bool is_of_head(const std::string& name);

// Error(usage), about the option `where`, where an attention layer has another number of heads than before: its
// parameters would have the same shapes and another meaning.
void require_same_heads(LanguageModel& before, LanguageModel& after, const std::string& where);

// Fills the parameters, all but those added, which keep the values that they have. Error(input) for damaged ones.
void adopt_parameters(const io::Checkpoint& checkpoint, nn::ParameterList& parameters);

// How far last hidden states are from those of the checkpoint's own model, at most, on a few random tokens, without
// dropout: 0 where what was added does nothing yet. Sets the composed path.
double change_by_adoption(const io::Checkpoint& checkpoint, LanguageModel& model);

}  // namespace mh::model
