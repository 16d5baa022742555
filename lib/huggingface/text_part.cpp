#include "huggingface/text_part.h"

#include <utility>

#include "base/error.h"

namespace mh::huggingface {

namespace {

// Prefixes of the language model in files of transformers 4 and 5, and in a folder of its own.
constexpr std::pair<const char*, const char*> kTextPrefixes[] = {
    {"language_model.model.", "model."}, {"language_model.lm_head.", "lm_head."}, {"model.language_model.", "model."}};
// Prefixes of the other parts; in version 5 "model." precedes them.
constexpr const char* kOtherPrefixes[] = {"vision_tower.", "multi_modal_projector.", "model.vision_tower.",
                                          "model.multi_modal_projector."};

}  // namespace

bool has_text_part(const io::JsonConfig& config) { return config.value("model_type", "") == "gemma3"; }

io::JsonConfig text_part(const io::JsonConfig& config) {
  if (auto part = config.object("text_config")) return *std::move(part);
  refuse_input(config.path() + ": text_config", "the settings of the language model", "none",
               "copy config.json from the source of the model");
}

std::string language_model_tensor_name(const std::string& tensor_name) {
  for (const auto& [prefix, new_prefix] : kTextPrefixes)
    if (tensor_name.starts_with(prefix)) return new_prefix + tensor_name.substr(std::string(prefix).size());
  for (const char* prefix : kOtherPrefixes)
    if (tensor_name.starts_with(prefix)) return "";
  return tensor_name;
}

}  // namespace mh::huggingface
