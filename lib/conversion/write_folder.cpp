// Writes a model as a Hugging Face folder, after a check that transformers can represent it.
#include <c10/core/GradMode.h>

#include <algorithm>
#include <filesystem>

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "base/text.h"
#include "conversion/huggingface_folder.h"
#include "huggingface/architecture.h"
#include "io/tensor_files.h"
#include "nn/aten.h"

namespace mh::conversion {

using namespace huggingface;

namespace {

constexpr const char* kKeepCheckpoint = "keep the model as a multihead checkpoint";  // advice in errors

// Returns whether a changed setting ("key: old -> new") affects training only. Such settings are logged if config.json
// cannot store them.
bool affects_training_only(const std::string& change) {
  return change.starts_with("model.dropout") || change.starts_with("model.init:") ||
         change.find("dropout:") != std::string::npos;
}

// Returns whether a changed setting ("key: old -> new") describes sizes or numbers of heads. Equal shapes can be
// written in several ways, so the shapes of the parameters are compared instead.
bool affects_head_shapes(const std::string& change) {
  for (const char* key : {".head_size:", ".value_size:", ".value_heads:", ".output_heads:"})
    if (change.find(key) != std::string::npos) return true;
  return false;
}

class FolderWriter {
 public:
  explicit FolderWriter(const model::LoadedModel& loaded_model)
      : loaded_model_(loaded_model),
        settings_(settings_of(loaded_model.config.toml())),
        architecture_(find_architecture()),
        names_(architecture_->tensor_names(settings_)),
        num_embedding_rows_(parameter(names_.pairs.front().multihead_names.front()).master().size(0)) {}

  void write(OutputFolder& folder) const {
    Json config = architecture_->config(settings_);
    config["vocab_size"] = num_embedding_rows_;
    config.update(architecture_->token_ids(loaded_model_.tokenizers));
    require_supported(config);
    auto files = architecture_->vocabulary_files(loaded_model_.tokenizers, settings_, loaded_model_.name);
    files["config.json"] = config.dump(2) + "\n";
    for (const auto& [name, text] : files) write_file_atomically(folder.file(name), text);
    write_tensors(folder.file("model.safetensors"));
    log_info("saved as " + config.at("architectures").at(0).get<std::string>() +
             "; all parameters and all settings of evaluation are preserved");
  }

 private:
  [[noreturn]] void refuse(const std::string& expected, const std::string& found) const {
    refuse_input(loaded_model_.name, expected, found, kKeepCheckpoint);
  }

  std::unique_ptr<Architecture> find_architecture() const {
    const Json& backbone = settings_.at("model.backbone");
    std::vector<std::string> known_backbones;
    for (const std::string& name : architectures().names()) {
      auto architecture = architectures().make(name, "architecture");
      if (backbone == architecture->backbone()) return architecture;
      known_backbones.push_back(architecture->backbone());
    }
    refuse("a model that transformers supports: model.backbone " + join(known_backbones, " or "), backbone.dump());
  }

  const nn::Parameter& parameter(const std::string& name) const {
    for (const nn::Parameter& p : loaded_model_.model->parameters().all())
      if (p.name() == name) return p;
    refuse("the parameter " + name + ", which transformers requires for this architecture",
           "no parameter of this name");
  }

  // Throws Error(input) unless the conversion of config.json back to a multihead model gives the parameter shapes of
  // the written model and, except for settings of training, its settings. Logs settings of training that differ.
  void require_supported(const Json& config) const {
    std::set<std::string> huggingface_names;
    for (const TensorPair& pair : names_.pairs) huggingface_names.insert(pair.huggingface_name);
    Settings settings;
    try {
      settings = architecture_->settings({config.dump(), "config.json"}, huggingface_names);
    } catch (const Error& error) {
      const Problem& problem = error.problem();
      refuse_input(str(loaded_model_.name, ", converted to ", problem.where), problem.expected, problem.found,
                   kKeepCheckpoint);
    }
    const int64_t vocabulary_size = loaded_model_.tokenizers.target->size();
    settings["model.vocabulary_rows"] =
        num_embedding_rows_ > vocabulary_size ? Json(num_embedding_rows_) : settings_.at("model.vocabulary_rows");
    settings["model.score_padded_rows"] =
        num_embedding_rows_ > vocabulary_size ? Json(true) : settings_.at("model.score_padded_rows");
    Config toml_config;
    toml_config.load_text(toml_of(settings), "config.json");
    const model::ModelConfig converted_config = model::ModelConfig::read(toml_config);
    std::vector<std::string> unsupported_changes, training_changes;
    for (const std::string& change :
         config_difference_texts(loaded_model_.config.toml(), converted_config.toml(), {"model.", "attention."}))
      if (affects_training_only(change)) training_changes.push_back(change);
      else if (!affects_head_shapes(change)) unsupported_changes.push_back(change);
    if (!unsupported_changes.empty())
      refuse("settings that transformers supports",
             "settings that the conversion changes: " + join(unsupported_changes, "; "));
    const auto model =
        model::build_language_model(converted_config, model::vocabulary_sizes_of(loaded_model_.tokenizers), at::kMeta);
    for (const nn::Parameter& written_parameter : loaded_model_.model->parameters().all()) {
      const nn::Parameter* converted_parameter = model->parameters().find(written_parameter.name());
      if (converted_parameter == nullptr || converted_parameter->master().sizes() != written_parameter.master().sizes())
        refuse(
            "the parameters of the architecture in transformers",
            str(written_parameter.name(), " with the shape ", shape_text(written_parameter.master().sizes()),
                converted_parameter == nullptr ? ", which the architecture lacks"
                                               : " instead of " + shape_text(converted_parameter->master().sizes())));
    }
    for (const std::string& change : training_changes)
      log_info("config.json does not store the training setting " + change);
  }

  void write_tensors(const std::string& path) const {
    model::CheckpointTensors tensors;
    for (const TensorPair& pair : names_.pairs) {
      std::vector<at::Tensor> parameter_values;
      for (const std::string& name : pair.multihead_names)
        parameter_values.push_back(parameter(name).master().detach());
      at::Tensor tensor = parameter_values.size() == 1 ? parameter_values.front() : at::cat(parameter_values);
      if (pair.is_transposed) tensor = tensor.t().contiguous();
      std::vector<std::string> tensor_names{pair.huggingface_name};
      for (const auto& [alias, original] : names_.aliases)
        if (original == pair.huggingface_name && names_.ignored_aliases.count(alias) > 0) tensor_names.push_back(alias);
      for (const std::string& name : tensor_names)
        tensors.add((architecture_->belongs_to_output_head(name) ? "" : architecture_->tensor_prefix()) + name, tensor);
    }
    auto sink = open_sink(path);
    io::write_checkpoint(*sink, tensors.views(), {{"format", "pt"}});
    sink->close();
  }

  const model::LoadedModel& loaded_model_;
  Settings settings_;
  std::unique_ptr<Architecture> architecture_;
  TensorNames names_;
  int64_t num_embedding_rows_;
};

}  // namespace

void write_folder(const model::LoadedModel& loaded_model, const std::string& folder) {
  if (std::filesystem::exists(folder))
    refuse_usage(folder, "a new folder", "an existing folder", "remove the folder, or choose another name");
  const FolderWriter writer(loaded_model);
  OutputFolder output(folder);
  writer.write(output);
  output.close();
}

}  // namespace mh::conversion
