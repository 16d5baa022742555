// Writes a model as a Hugging Face folder, after a check that transformers can represent it.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <optional>
#include <set>

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "base/text.h"
#include "conversion/huggingface_folder.h"
#include "huggingface/architecture.h"
#include "huggingface/companion_files.h"
#include "huggingface/encoder_decoder.h"
#include "huggingface/tensor_layout.h"
#include "io/float_formats.h"
#include "nn/aten.h"

namespace mh::conversion {

using namespace huggingface;

namespace {

constexpr const char* kCheckpointAdvice = "keep the model as a multihead checkpoint";  // advice in errors

// Returns whether a changed setting ("key: old -> new") affects training only. Such settings are logged if config.json
// cannot store them.
bool affects_training_only(const std::string& change) {
  return change.starts_with("model.dropout") || change.starts_with("model.init:") ||
         change.find("dropout:") != std::string::npos;
}

// Returns whether a changed setting ("key: old -> new") describes sizes, numbers of heads or layers, or biases. Equal
// parameters can be described in several ways, so the names and shapes of the parameters are compared instead.
bool affects_parameters_only(const std::string& change) {
  for (const char* key : {".head_size:", ".value_size:", ".value_heads:", ".output_heads:", ".key_value_heads:",
                          ".output_bias:", ".encoder_layers:"})
    if (change.find(key) != std::string::npos) return true;
  return false;
}

using OptionValues = std::map<std::string, std::string>;  // values in TOML by key, such as "rotary.base"

OptionValues option_values(const attention::AttentionOptions& options) {
  FieldLister lister;
  attention::AttentionOptions copy = options;
  lister.section("", copy);
  OptionValues values;
  for (const FieldDescription& field : lister.descriptions()) values[field.key] = field.value;
  return values;
}

// Returns the options of attention that differ between two models of equal numbers of layers, as texts "key: old ->
// new": once for all layers of a kind with the same difference. Compares layer by layer, since configurations of equal
// models may divide the options in another way into options of all layers and overrides.
std::vector<std::string> attention_changes(const model::ModelConfig& old_config, const model::ModelConfig& new_config) {
  std::vector<std::string> changes;
  const auto backbone = model::backbones().make(old_config.model.backbone, "model.backbone");
  for (const auto& [kind, count] : backbone->layer_counts(old_config.model)) {
    std::map<std::string, std::map<int64_t, std::string>> texts;  // texts by key and layer
    for (int64_t layer = 0; layer < count; ++layer) {
      const OptionValues old_values = option_values(old_config.attention.layer(kind, layer)),
                         new_values = option_values(new_config.attention.layer(kind, layer));
      OptionValues all_values = old_values;
      all_values.insert(new_values.begin(), new_values.end());
      for (const auto& [key, any_value] : all_values) {
        const auto old_value = old_values.find(key), new_value = new_values.find(key);
        const std::string old_text = old_value == old_values.end() ? "default" : old_value->second,
                          new_text = new_value == new_values.end() ? "default" : new_value->second;
        if (old_text != new_text) texts[key][layer] = str(": ", old_text, " -> ", new_text);
      }
    }
    for (const auto& [key, texts_of_layers] : texts) {
      std::set<std::string> distinct_texts;
      for (const auto& [layer, text] : texts_of_layers) distinct_texts.insert(text);
      if (distinct_texts.size() == 1 && static_cast<int64_t>(texts_of_layers.size()) == count) {
        changes.push_back(str("attention.", key, *distinct_texts.begin()));
        continue;
      }
      for (const auto& [layer, text] : texts_of_layers)
        changes.push_back(str("attention.", attention::name_of(kind), ".", layer, ".", key, text));
    }
  }
  return changes;
}

// The difference between a model and the model that its conversion to config.json and back gives.
struct Fit {
  std::vector<std::string> unsupported_changes;  // changed settings, "key: old -> new"
  std::vector<std::string> training_changes;     // changed settings without effect on evaluation
  std::string parameter_difference;              // a parameter that differs, for the part `found` of an error; "": none
  bool has_vocabulary = true;                    // whether the architecture supports the type of the vocabulary

  bool is_complete() const { return num_differences() == 0; }
  size_t num_differences() const {
    return unsupported_changes.size() + (parameter_difference.empty() ? 0 : 1) + (has_vocabulary ? 0 : 1);
  }
};

class FolderWriter {
 public:
  FolderWriter(const model::LoadedModel& loaded_model, const std::string& model_type, const WriteOptions& options)
      : loaded_model_(loaded_model),
        dtype_(options.dtype),
        companions_(options.companions),
        settings_(settings_of(loaded_model.config.toml())),
        architecture_(architectures().make(model_type, "model_type")) {
    for (const nn::Parameter& parameter : loaded_model.model->parameters().all())
      parameters_[parameter.name()] = &parameter;
    names_ = architecture_->tensor_names(settings_);
    num_embedding_rows_ = parameter(names_.pairs.front().multihead_names.front()).master().size(0);
    config_ = architecture_->config(settings_);
    const auto source_table = parameters_.find(kSourceTable);
    const bool has_source_table =
        source_table != parameters_.end() && names_.pairs.front().multihead_names.front() != kSourceTable;
    architecture_->set_vocabulary_sizes(config_, num_embedding_rows_,
                                        has_source_table ? source_table->second->master().size(0) : 0);
    const Json token_ids = architecture_->token_ids(loaded_model_.tokenizers);
    has_vocabulary_ = !token_ids.empty();
    config_.update(token_ids);
    config_["dtype"] = dtype_name(dtype_);
  }

  // Converts config.json back to a multihead model, and compares the settings and the names and shapes of the
  // parameters of both models. Throws Error(input) if config.json cannot be converted back.
  Fit fit() const {
    std::set<std::string> huggingface_names;
    for (const TensorPair& pair : names_.pairs) huggingface_names.insert(pair.huggingface_name);
    Settings settings;
    try {
      settings = architecture_->settings({config_.dump(), "config.json"}, huggingface_names);
    } catch (const Error& error) {
      const Problem& problem = error.problem();
      refuse_input(str(loaded_model_.name, ", converted to ", problem.where), problem.expected, problem.found,
                   kCheckpointAdvice);
    }
    const int64_t vocabulary_size = loaded_model_.tokenizers.target->size();
    settings["model.vocabulary_rows"] =
        num_embedding_rows_ > vocabulary_size ? Json(num_embedding_rows_) : settings_.at("model.vocabulary_rows");
    settings["model.score_padded_rows"] =
        num_embedding_rows_ > vocabulary_size ? Json(true) : settings_.at("model.score_padded_rows");
    if (const auto source_rows = settings_.find(kSourceRows); source_rows != settings_.end())
      settings[kSourceRows] = source_rows->second;
    Config toml_config;
    toml_config.load_text(toml_of(settings), "config.json");
    const model::ModelConfig converted_config = model::ModelConfig::read(toml_config);
    std::vector<std::string> changes =
        config_difference_texts(loaded_model_.config.toml(), converted_config.toml(), {"model."});
    if (loaded_model_.config.model.layers == converted_config.model.layers)
      for (std::string& change : attention_changes(loaded_model_.config, converted_config))
        changes.push_back(std::move(change));
    Fit fit;
    fit.has_vocabulary = has_vocabulary_;
    for (const std::string& change : changes)
      if (affects_training_only(change)) fit.training_changes.push_back(change);
      else if (!affects_parameters_only(change)) fit.unsupported_changes.push_back(change);
    if (fit.unsupported_changes.empty()) fit.parameter_difference = parameter_difference(converted_config);
    return fit;
  }

  // Throws Error(input) that names what transformers cannot represent. `fit`: result of fit(), which is not complete.
  [[noreturn]] void refuse(const Fit& fit) const {
    if (!fit.unsupported_changes.empty())
      refuse("settings that transformers supports",
             "settings that the conversion changes: " + join(fit.unsupported_changes, "; "));
    if (!fit.parameter_difference.empty())
      refuse("the parameters of the architecture in transformers", fit.parameter_difference);
    architecture_->vocabulary_files(loaded_model_.tokenizers, settings_, loaded_model_.name);
    throw std::logic_error("the architecture supports the vocabulary but has no token ids for it");
  }

  void write(OutputFolder& folder, const Fit& fit) const {
    for (const std::string& change : fit.training_changes)
      log_info("config.json does not store the training setting " + change);
    auto files = architecture_->vocabulary_files(loaded_model_.tokenizers, settings_, loaded_model_.name);
    Json config = config_;
    add_companions(companions_, loaded_model_.name + ": " + io::kHuggingFaceKey, config, files);
    files["config.json"] = config.dump(2) + "\n";
    for (const auto& [name, text] : files) write_file_atomically(folder.file(name), text);
    write_tensors(folder.file("model.safetensors"));
    log_info(str("saved as ", config_.at("architectures").at(0).get<std::string>(), " in ", dtype_name(dtype_),
                 "; all ",
                 dtype_ == io::DType::f32 ? "parameters and all settings of evaluation are preserved"
                                          : "settings of evaluation are preserved, and parameters are rounded"));
  }

 private:
  [[noreturn]] void refuse(const std::string& expected, const std::string& found) const {
    refuse_input(loaded_model_.name, expected, found, kCheckpointAdvice);
  }

  const nn::Parameter& parameter(const std::string& name) const {
    if (const auto it = parameters_.find(name); it != parameters_.end()) return *it->second;
    refuse("the parameter " + name + ", which transformers requires for this architecture",
           "no parameter of this name");
  }

  // Returns a parameter of the written model that a model of `converted_config` lacks or has in another shape, or the
  // other way round, for the part `found` of an error; "": none.
  std::string parameter_difference(const model::ModelConfig& converted_config) const {
    const auto model =
        model::build_language_model(converted_config, model::vocabulary_sizes_of(loaded_model_.tokenizers), at::kMeta);
    std::map<std::string, Shape> converted_shapes;
    for (const nn::Parameter& p : model->parameters().all()) converted_shapes[p.name()] = p.master().sizes().vec();
    for (const auto& [name, written_parameter] : parameters_) {
      const Shape shape = written_parameter->master().sizes().vec();
      const auto converted_shape = converted_shapes.find(name);
      if (converted_shape == converted_shapes.end())
        return str(name, " with the shape ", shape_text(shape), ", which the architecture lacks");
      if (converted_shape->second != shape)
        return str(name, " with the shape ", shape_text(shape), " instead of ", shape_text(converted_shape->second));
      converted_shapes.erase(converted_shape);
    }
    return converted_shapes.empty() ? "" : "no parameter " + converted_shapes.begin()->first;
  }

  void write_tensors(const std::string& path) const {
    std::vector<io::TensorView> views;
    std::vector<float> buffer;  // elements of one tensor, which from_fp32() converts in place
    for (const TensorPair& pair : names_.pairs) {
      std::vector<std::string> tensor_names{pair.huggingface_name};
      for (const auto& [alias, original] : names_.aliases)
        if (original == pair.huggingface_name && names_.ignored_aliases.count(alias) > 0) tensor_names.push_back(alias);
      std::vector<Shape> shapes;
      for (const std::string& name : pair.multihead_names) shapes.push_back(parameter(name).master().sizes().vec());
      for (const std::string& name : tensor_names)
        views.push_back({{(architecture_->belongs_to_output_head(name) ? "" : architecture_->tensor_prefix()) + name,
                          dtype_, tensor_shape(pair, shapes)},
                         nullptr,
                         [this, &pair, shapes, &buffer] { return produce(pair, shapes, buffer); }});
    }
    auto sink = open_sink(path);
    io::write_checkpoint(*sink, views, {{"format", "pt"}});
    sink->close();
  }

  // Returns the elements of a tensor of transformers, in the format `dtype_`: the elements of its parameter if they are
  // equal, otherwise a copy in `buffer`.
  const void* produce(const TensorPair& pair, const std::vector<Shape>& shapes, std::vector<float>& buffer) const {
    std::vector<const float*> parameters;
    for (const std::string& name : pair.multihead_names)
      parameters.push_back(parameter(name).master().const_data_ptr<float>());
    if (dtype_ == io::DType::f32 && parameters.size() == 1 && !pair.is_transposed && pair.addend == 0 &&
        pair.num_interleaved_rows == 0 && pair.num_unused_rows == 0)
      return parameters.front();
    int64_t num_elements = 1;
    for (const int64_t size : tensor_shape(pair, shapes)) num_elements *= size;
    buffer.resize(std::max(buffer.size(), static_cast<size_t>(num_elements)));
    write_tensor(pair, shapes, parameters, buffer.data());
    if (dtype_ == io::DType::f32) return buffer.data();
    if (dtype_ == io::DType::f16)
      io::require_half_range(str(loaded_model_.name, ": ", join(pair.multihead_names, ", ")), buffer.data(),
                             static_cast<size_t>(num_elements));
    io::from_fp32(dtype_, buffer.data(), static_cast<size_t>(num_elements), buffer.data());
    return buffer.data();
  }

  const model::LoadedModel& loaded_model_;
  io::DType dtype_;
  std::string companions_;
  Settings settings_;
  std::unique_ptr<Architecture> architecture_;
  std::map<std::string, const nn::Parameter*> parameters_;  // by name
  TensorNames names_;
  int64_t num_embedding_rows_ = 0;
  bool has_vocabulary_ = true;
  Json config_;
};

// Returns the architectures with the backbone of the model, `preferred_type` first.
std::vector<std::string> candidate_types(const model::LoadedModel& model, const std::string& preferred_type) {
  std::vector<std::string> candidates;
  std::set<std::string> known_backbones;
  for (const std::string& name : architectures().names()) {
    const std::string backbone = architectures().make(name, "architecture")->backbone();
    known_backbones.insert(backbone);
    if (backbone != model.config.model.backbone) continue;
    if (name == preferred_type) candidates.insert(candidates.begin(), name);
    else if (architectures().make(name, "architecture")->is_default_for_writing()) candidates.push_back(name);
  }
  if (candidates.empty())
    refuse_input(model.name,
                 "a model that transformers supports: model.backbone \"" +
                     join({known_backbones.begin(), known_backbones.end()}, "\" or \"") + '"',
                 '"' + model.config.model.backbone + '"', kCheckpointAdvice);
  return candidates;
}

}  // namespace

const char* dtype_name(io::DType dtype) {
  return dtype == io::DType::f16 ? "float16" : dtype == io::DType::bf16 ? "bfloat16" : "float32";
}

void write_folder(const model::LoadedModel& loaded_model, const std::string& folder, const WriteOptions& options) {
  if (std::filesystem::exists(folder))
    refuse_usage(folder, "a new folder", "an existing folder", "remove the folder, or choose another name");
  // Chooses the first architecture that has all settings of the model. If there is none, the error describes the
  // architecture with the fewest differences, for which the model probably was meant. The error of an architecture that
  // refuses its own config.json states only the first fault; if the architecture has the name of the backbone, as BERT,
  // the error counts as kRefusalDifferences differences.
  constexpr size_t kRefusalDifferences = 4;
  std::optional<Error> first_error, error_of_backbone;
  std::unique_ptr<FolderWriter> nearest_writer;
  Fit nearest_fit;
  for (const std::string& model_type : candidate_types(loaded_model, options.model_type)) {
    try {
      auto writer = std::make_unique<FolderWriter>(loaded_model, model_type, options);
      Fit fit = writer->fit();
      if (nearest_writer == nullptr || fit.num_differences() < nearest_fit.num_differences()) {
        nearest_writer = std::move(writer);
        nearest_fit = std::move(fit);
      }
      if (nearest_fit.is_complete()) break;
    } catch (const Error& error) {
      if (!first_error) first_error = error;
      if (model_type == loaded_model.config.model.backbone) error_of_backbone = error;
    }
  }
  if (nearest_writer == nullptr) throw *first_error;
  if (error_of_backbone && nearest_fit.num_differences() > kRefusalDifferences) throw *error_of_backbone;
  if (!nearest_fit.is_complete()) nearest_writer->refuse(nearest_fit);
  OutputFolder output(folder);
  nearest_writer->write(output, nearest_fit);
  output.close();
}

}  // namespace mh::conversion
