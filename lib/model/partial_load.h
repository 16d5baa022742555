// Warm start: a model takes over the parameters of a checkpoint and adds others, of stages in its attention layers or
// of an encoder head.
#pragma once

#include <string>
#include <vector>

#include "io/checkpoint.h"
#include "model/load.h"

namespace mh::model {

struct PartialLoad {
  std::vector<std::string> added;     // parameters that the checkpoint lacks, or has for another number of classes
  std::vector<std::string> left_out;  // tensors of the checkpoint that the model lacks
};

// Returns which parameters load_matching_parameters() would add and leave out. Only stages of attention layers and the
// pooler and head of an encoder may be added; only the pooler and head may be left out. Throws Error(usage) about the
// option `where` if any other parameter is missing, unknown or of another shape; the error names it.
PartialLoad partial_load_of(const io::Checkpoint& checkpoint, const nn::ParameterList& parameters,
                            const std::string& where);

// Returns whether a parameter belongs to the pooler or head of an encoder.
bool is_of_head(const std::string& name);

// Throws Error(usage) about the option `where` if an attention layer has different numbers of heads in the two models:
// the shapes of its parameters may agree although their columns belong to other heads.
void require_same_heads(LanguageModel& before, LanguageModel& after, const std::string& where);

// Loads all parameters that the checkpoint has; added parameters keep their values. Throws Error(input) for damaged
// tensors.
void load_matching_parameters(const io::Checkpoint& checkpoint, nn::ParameterList& parameters);

// Returns the largest absolute difference between the last hidden states of `model` and of the checkpoint's own model,
// on a few random tokens, without dropout: 0 if the added stages do not change the result yet. Sets the composed path.
double change_by_added_stages(const io::Checkpoint& checkpoint, LanguageModel& model);

}  // namespace mh::model
