// Warm start: a model loads the parameters of a checkpoint although the model has additional parameters, of attention
// stages or of an encoder's task head.
#pragma once

#include <string>
#include <vector>

#include "io/checkpoint.h"
#include "model/load.h"

namespace mh::model {

// The differences between the tensors of a model and of a checkpoint.
struct PartialLoad {
  // Names of parameters that the checkpoint lacks, and of parameters of the pooler and the task head that it has in
  // another shape.
  std::vector<std::string> added_parameters;
  std::vector<std::string> ignored_tensors;  // tensors of the checkpoint that the model lacks; without training state
};

// Returns the parameters that load_matching_parameters() does not load, and the tensors of the checkpoint that it
// ignores. Only parameters of attention stages and of the pooler and task head of an encoder may be added; only tensors
// of the pooler and task head may be left out. Throws Error(usage) if any other parameter is missing, unknown or of
// another shape. `option_name`: the option that sets the checkpoint, for the message.
PartialLoad compare_with_checkpoint(const io::Checkpoint& checkpoint, const nn::ParameterList& parameters,
                                    const std::string& option_name);

// Returns whether the parameter `name` belongs to the pooler or the task head of an encoder.
bool is_task_head_parameter(const std::string& name);

// Throws Error(usage) if an attention layer of `old_model`, the model of the checkpoint, and the same layer of
// `new_model` have different numbers of heads. Equal shapes of parameters do not suffice, since columns of the same
// index may belong to different heads. `option_name`: the option that sets the checkpoint, for the message.
void require_same_heads(LanguageModel& old_model, LanguageModel& new_model, const std::string& option_name);

// Copies all parameters that the checkpoint has in the shape of the model, and leaves all other parameters
// (PartialLoad::added_parameters) unchanged. Throws Error(input) for damaged tensors.
void load_matching_parameters(const io::Checkpoint& checkpoint, nn::ParameterList& parameters);

// Returns the maximum absolute difference between the last hidden states of `model` and of the model in the checkpoint,
// on a few random tokens, without dropout. 0 means that the added stages do not change the hidden states yet. Sets the
// attention path of `model` to composed.
double max_hidden_difference(const io::Checkpoint& checkpoint, LanguageModel& model);

}  // namespace mh::model
