// Models of Hugging Face that multihead recognises but does not support, with the reason: architectures, settings and
// tensors without an equivalent. A model is refused before its tensors are read.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "huggingface/architecture.h"

namespace mh::huggingface {

// Values of model_type that are refused for the same reason.
struct UnsupportedTypes {
  const char* reason;  // unsupported property of the models, for the part `found` of an error
  const char* advice;
  std::vector<std::string_view> model_types;
};
const std::vector<UnsupportedTypes>& unsupported_types();

// Throws Error(input) for a folder with the adapter of another model instead of a whole model.
void refuse_adapter(const std::string& folder);

// Throws Error(input) for a folder without config.json.
void refuse_missing_config(const std::string& folder);

// Returns the architecture with the model_type of config.json. Throws Error(input) for an unsupported type: with the
// reason if unsupported_types() has the type, otherwise with all supported types and the most similar of them.
std::unique_ptr<Architecture> find_architecture(const JsonConfig& config);

// Throws Error(input) for settings that no architecture supports: quantised weights, experts, layers of different
// shapes, types of layers other than attention with or without a window, and gates on the output of attention.
void refuse_unsupported_settings(const JsonConfig& config);

// Returns the unsupported part of a model to which a tensor of this name belongs, such as "a mixture of experts"; "" if
// there is none.
std::string unsupported_part(const std::string& tensor_name);

}  // namespace mh::huggingface
