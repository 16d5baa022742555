// Reads a Hugging Face folder: converts config.json and copies the tensors to the parameters of a model.
#include <c10/core/GradMode.h>

#include <algorithm>
#include <filesystem>
#include <stdexcept>

#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "conversion/huggingface_folder.h"
#include "huggingface/architecture.h"
#include "io/tensor_files.h"
#include "nn/aten.h"
#include "nn/finite.h"

namespace mh::conversion {

using namespace huggingface;

namespace {

// Keys of config.json that are ignored without a warning: bookkeeping of transformers, and settings that do not affect
// the converted model, such as settings of text generation, initialisation and output heads.
constexpr const char* kSilentlyIgnoredKeys[] = {"_name_or_path",
                                                "architectures",
                                                "bos_token_id",
                                                "dtype",
                                                "eos_token_id",
                                                "finetuning_task",
                                                "gradient_checkpointing",
                                                "id2label",
                                                "initializer_range",
                                                "label2id",
                                                "model_type",
                                                "problem_type",
                                                "output_attentions",
                                                "output_hidden_states",
                                                "output_past",
                                                "return_dict",
                                                "sep_token_id",
                                                "summary_activation",
                                                "summary_first_dropout",
                                                "summary_proj_to_labels",
                                                "summary_type",
                                                "summary_use_proj",
                                                "task_specific_params",
                                                "torch_dtype",
                                                "transformers_version",
                                                "directionality",
                                                "pooler_fc_size",
                                                "pooler_num_attention_heads",
                                                "pooler_num_fc_layers",
                                                "pooler_size_per_head",
                                                "pooler_type",
                                                "pad_token_id",
                                                "classifier_dropout",
                                                "use_cache"};

class FolderReader {
 public:
  FolderReader(const std::string& folder, const ReadOptions& options)
      : folder_(folder),
        options_(options),
        config_(read_config(folder)),
        architecture_(find_architecture()),
        files_(io::open_model_files(folder)) {
    for (const auto& [name, entry] : files_.entries()) {
      const std::string name_without_prefix = canonical_name(name, architecture_->tensor_prefix());
      if (const auto [it, is_new] = full_names_.emplace(name_without_prefix, name); !is_new)
        refuse_input(entry.path, "unique tensor names",
                     str(it->second, " and ", name, ", which are both names of the tensor ", name_without_prefix),
                     str("remove the tensor ", it->second, " or ", name));
      names_without_prefix_.insert(name_without_prefix);
    }
  }

  model::LoadedModel read() {
    Settings settings = architecture_->settings(config_, names_without_prefix_);
    if (const Json& layers = settings.at("model.layers"); layers > names_without_prefix_.size())
      refuse_input(config_.path() + ": number of layers",
                   str("at most ", names_without_prefix_.size(), ", the number of tensors"), layers.dump(),
                   "copy config.json from the source of the model");
    settings = read_vocabulary(std::move(settings));
    log_replaced_token_ids();
    log_ignored_keys();
    names_ = architecture_->tensor_names(settings);
    refuse_unknown_tensors(settings);
    model::LoadedModel loaded_model;
    loaded_model.name = folder_;
    loaded_model.toml = toml_of(settings);
    loaded_model.tokenizers = std::move(tokenizers_);
    build(loaded_model);
    copy_tensors(loaded_model.model->parameters());
    check_aliases();
    return loaded_model;
  }

 private:
  static JsonConfig read_config(const std::string& folder) {
    const std::string path = folder + "/config.json";
    if (!std::filesystem::exists(path))
      refuse_input(folder, "a Hugging Face folder with config.json", "no config.json",
                   "give the folder that save_pretrained wrote");
    return {read_regular_file(path), path};
  }
  std::unique_ptr<Architecture> find_architecture() const {
    std::vector<Json> known_types;
    for (const std::string& name : architectures().names()) known_types.emplace_back(name);
    config_.require("model_type", "", known_types,
                    "use a model of one of these architectures, the only ones that multihead supports");
    return architectures().make(config_.value("model_type", "").get<std::string>(), "model_type");
  }

  // Returns the place of an error of the converted configuration: the key of config.json from which the setting was
  // converted, or else the place in the converted configuration.
  std::string place_in_config(const std::string& place) const {
    for (const SettingPair& pair : architecture_->setting_pairs())
      for (const char* key : pair.multihead_keys)
        if (place == key || place.ends_with(str(' ', key))) return str(config_.path(), ": ", pair.huggingface_key);
    return place.starts_with(converted_name()) ? place : str(converted_name(), ": ", place);
  }
  std::string converted_name() const { return config_.path() + ", converted to TOML"; }

  // Builds the model. Errors of the converted configuration are reported as errors of config.json.
  void build(model::LoadedModel& loaded_model) const {
    try {
      Config config;
      config.load_text(loaded_model.toml, converted_name());
      loaded_model.config = model::ModelConfig::read(config);
      loaded_model.model = model::build_language_model(loaded_model.config,
                                                       model::vocabulary_sizes_of(loaded_model.tokenizers), at::kCPU);
    } catch (const Error& error) {
      const Problem& problem = error.problem();
      refuse_input(place_in_config(problem.where), problem.expected, without_default_remark(problem.found),
                   "correct config.json, or copy the folder again");
    }
  }

  // Reads the vocabulary and returns the settings. If the folder has more embedding rows than its vocabulary has
  // entries, the returned settings contain the number of rows. Throws Error(input) for missing rows, and for additional
  // rows unless `options_.keep_padded_rows` is set.
  Settings read_vocabulary(Settings settings) {
    tokenizers_ = architecture_->tokenizers(folder_);
    const TensorNames names = architecture_->tensor_names(settings);
    const io::TensorFiles::Entry& embedding = entry_of(names, names.pairs.front().huggingface_name);
    const int64_t num_embedding_rows = embedding.info.shape.empty() ? 0 : embedding.info.shape[0],
                  vocabulary_size = tokenizers_.target->size();
    if (num_embedding_rows < vocabulary_size || (num_embedding_rows > vocabulary_size && !options_.keep_padded_rows))
      refuse_input(embedding.path + ": " + embedding.info.name,
                   str("a row for each of the ", count_of(vocabulary_size, "entry"), " of the vocabulary"),
                   count_of(num_embedding_rows, "row"),
                   num_embedding_rows < vocabulary_size
                       ? "the vocabulary belongs to another model; copy the vocabulary files of this model"
                       : "if the rows are padding, keep them with --padded-vocabulary; otherwise the "
                         "vocabulary belongs to another model: copy the vocabulary files of this model");
    if (num_embedding_rows == vocabulary_size) return settings;
    settings["model.vocabulary_rows"] = num_embedding_rows;
    settings["model.score_padded_rows"] = true;
    log_info(
        str(num_embedding_rows - vocabulary_size,
            " embedding rows past the end of the vocabulary are kept, and are part of the softmax as in transformers"));
    return settings;
  }

  // Returns the tensor with this name in the folder, or else a tensor under an alternative name; null if the folder has
  // neither.
  const io::TensorFiles::Entry* find_entry(const TensorNames& names, const std::string& name_without_prefix) const {
    if (const auto full_name = full_names_.find(name_without_prefix); full_name != full_names_.end())
      return files_.find(full_name->second);
    for (const auto& [alias, original] : names.aliases)
      if (const auto full_name = full_names_.find(alias);
          original == name_without_prefix && full_name != full_names_.end())
        return files_.find(full_name->second);
    return nullptr;
  }

  const io::TensorFiles::Entry& entry_of(const TensorNames& names, const std::string& name_without_prefix) const {
    if (const io::TensorFiles::Entry* entry = find_entry(names, name_without_prefix)) return *entry;
    std::string expected = "the tensor " + name_without_prefix;
    for (const auto& [alias, original] : names.aliases)
      if (original == name_without_prefix) expected += " or " + alias;
    refuse_input(files_.entries().empty() ? folder_ : files_.entries().begin()->second.path, expected, "no such tensor",
                 "copy the folder again");
  }

  void log_replaced_token_ids() const {
    const Json token_ids = architecture_->token_ids(tokenizers_);
    for (const auto& [key, number] : token_ids.items())
      if (const Json config_value = config_.value(key, nullptr); !config_value.is_null() && config_value != number)
        log_warning(str(config_.path(), ": ", key, " is ", config_value.dump(), "; using ", number.dump(),
                        " from the tokenizer files"));
  }

  void log_ignored_keys() const {
    std::vector<std::string> unread_keys;
    for (const std::string& key : config_.unread_keys())
      if (std::find(std::begin(kSilentlyIgnoredKeys), std::end(kSilentlyIgnoredKeys), key) ==
          std::end(kSilentlyIgnoredKeys))
        unread_keys.push_back(key);
    if (!unread_keys.empty()) log_warning(config_.path() + ": ignored unknown keys: " + join(unread_keys, ", "));
  }

  void refuse_unknown_tensors(const Settings& settings) const {
    std::set<std::string> known_names;
    for (const TensorPair& pair : names_.pairs) known_names.insert(pair.huggingface_name);
    for (const auto& [alias, original] : names_.aliases) known_names.insert(alias);
    std::vector<std::string> unused_names;
    for (const auto& [name_without_prefix, name] : full_names_) {
      if (known_names.count(name_without_prefix) > 0 || architecture_->is_buffer(name_without_prefix)) continue;
      if (!architecture_->is_unused(name_without_prefix, settings))
        refuse_input(files_.find(name)->path, "tensors of this model only", "the unknown tensor " + name,
                     "copy the folder again, or use a model without this tensor");
      unused_names.push_back(name);
    }
    if (!unused_names.empty()) log_info("ignored tensors that this model does not use: " + join(unused_names, ", "));
  }

  // Returns the optional components (TensorPair::component) of which the folder has no tensor.
  std::set<std::string> missing_components() const {
    std::set<std::string> components;
    for (const TensorPair& pair : names_.pairs)
      if (!pair.component.empty()) components.insert(pair.component);
    for (const TensorPair& pair : names_.pairs)
      if (find_entry(names_, pair.huggingface_name) != nullptr) components.erase(pair.component);
    return components;
  }

  void copy_tensors(nn::ParameterList& parameters) const {
    const std::set<std::string> initialised_components = missing_components();
    if (!initialised_components.empty()) parameters.initialise(options_.seed);
    for (const std::string& component : initialised_components)
      log_warning(component + " is missing in the Hugging Face folder and is initialised from the seed (--seed)");
    std::set<std::string> filled_names;
    for (const TensorPair& pair : names_.pairs) {
      filled_names.insert(pair.multihead_names.begin(), pair.multihead_names.end());
      if (initialised_components.count(pair.component) == 0) copy_tensor(pair, parameters);
    }
    for (const nn::Parameter& parameter : parameters.all())
      if (filled_names.count(parameter.name()) == 0)
        throw std::logic_error(parameter.name() + " has no counterpart in transformers");
    parameters.refresh_bf16_copies();
    nn::warn_if_not_finite(folder_, parameters);
  }

  void copy_tensor(const TensorPair& pair, nn::ParameterList& parameters) const {
    std::vector<nn::Parameter*> targets;
    for (const std::string& name : pair.multihead_names) {
      targets.push_back(parameters.find(name));
      if (targets.back() == nullptr)  // a bug: tensor_names() and the model follow the same settings
        throw std::logic_error("the converted model has no parameter " + name);
    }
    const io::TensorFiles::Entry& entry = entry_of(names_, pair.huggingface_name);
    std::vector<int64_t> shape = huggingface_shape(pair, targets);
    if (entry.info.shape != shape)
      refuse_input(entry.path + ": " + entry.info.name, "the shape " + shape_text(shape) + ", as in config.json",
                   "the shape " + shape_text(entry.info.shape),
                   "config.json and the tensors belong to different models; copy the folder again");
    std::vector<float> elements = files_.read_fp32(entry.info.name);
    c10::NoGradGuard no_gradient;
    at::Tensor tensor = at::from_blob(elements.data(), shape, at::kFloat);
    if (pair.is_transposed) tensor = tensor.t();
    int64_t row = 0;
    for (nn::Parameter* parameter : targets) {
      const int64_t num_rows = parameter->master().size(0);
      parameter->master().copy_(tensor.narrow(0, row, num_rows));
      row += num_rows;
    }
  }

  static std::vector<int64_t> huggingface_shape(const TensorPair& pair, const std::vector<nn::Parameter*>& targets) {
    std::vector<int64_t> shape = targets.front()->master().sizes().vec();
    shape[0] = 0;
    for (const nn::Parameter* parameter : targets) shape[0] += parameter->master().size(0);
    if (pair.is_transposed) std::swap(shape[0], shape[1]);
    return shape;
  }

  void check_aliases() const {
    for (const auto& [alias, original] : names_.aliases) {
      if (names_without_prefix_.count(alias) == 0 || names_without_prefix_.count(original) == 0) continue;
      const io::TensorFiles::Entry &a = *files_.find(full_names_.at(alias)),
                                   &b = *files_.find(full_names_.at(original));
      if (a.info.shape == b.info.shape && files_.read_fp32(a.info.name) == files_.read_fp32(b.info.name)) continue;
      if (names_.ignored_aliases.count(alias) > 0)
        log_info("tensor " + a.info.name + " is ignored in favour of " + b.info.name + ", which has another value");
      else
        refuse_input(a.path + ": " + a.info.name, "the values of " + b.info.name, "different values",
                     alias.ends_with(".bias")
                         ? str("both names mean the bias of the output layer; save the file again without ",
                               a.info.name, ", or, if the model was trained with that tensor, without ", b.info.name)
                         : "if the output layer is not tied to the embedding, set "
                           "tie_word_embeddings = false in config.json");
    }
  }

  std::string folder_;
  ReadOptions options_;
  JsonConfig config_;
  std::unique_ptr<Architecture> architecture_;
  io::TensorFiles files_;
  std::map<std::string, std::string> full_names_;  // full names in the folder, by canonical_name()
  std::set<std::string> names_without_prefix_;     // canonical names of all tensors in the folder
  text::Tokenizers tokenizers_;
  TensorNames names_;
};

}  // namespace

model::LoadedModel read_folder(const std::string& folder, const ReadOptions& options) {
  return FolderReader(folder, options).read();
}

}  // namespace mh::conversion
