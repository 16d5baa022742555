// Folders of models for text and images, of which multihead reads the language model: its settings are the object
// text_config of config.json, and its tensors have a prefix.
#pragma once

#include <string>

#include "io/json_config.h"

namespace mh::huggingface {

// Returns whether the model has parts besides a language model that multihead leaves out.
bool has_text_part(const io::JsonConfig& config);
// Returns the settings of the language model, with the path "config.json: text_config". Throws Error(input) if there
// are none.
io::JsonConfig text_part(const io::JsonConfig& config);
// Returns the name that a tensor has in a folder with the language model alone, such as "model.norm.weight" for
// "language_model.model.norm.weight"; "" for a tensor of another part; the name itself if it belongs to no known part.
std::string language_model_tensor_name(const std::string& tensor_name);

}  // namespace mh::huggingface
