// Reads a Hugging Face folder: converts config.json and the tensors to the parameters of a model.
#include <c10/core/GradMode.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <set>
#include <stdexcept>

#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "conversion/huggingface_folder.h"
#include "huggingface/architecture.h"
#include "huggingface/companion_files.h"
#include "huggingface/encoder_decoder.h"
#include "huggingface/refusals.h"
#include "huggingface/tensor_layout.h"
#include "huggingface/text_part.h"
#include "io/float_formats.h"
#include "io/tensor_files.h"
#include "nn/aten.h"

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

JsonConfig read_config(const std::string& folder) {
  refuse_adapter(folder);
  refuse_missing_config(folder);
  const std::string path = folder + "/config.json";
  JsonConfig config{read_regular_file(path), path};
  refuse_unsupported_settings(config);
  return config;
}

Shape shape_of(const nn::Parameter& parameter) { return parameter.master().sizes().vec(); }

}  // namespace

class FolderReader {
 public:
  FolderReader(const std::string& folder, const ReadOptions& options)
      : folder_(folder),
        options_(options),
        whole_config_(read_config(folder)),
        config_(has_text_part(whole_config_) ? text_part(whole_config_) : whole_config_),
        architecture_(find_architecture(config_)),
        files_(io::open_model_files(folder)),
        companions_(read_companions(folder, whole_config_)) {
    const bool is_part = has_text_part(whole_config_);
    if (is_part) refuse_unsupported_settings(config_);
    int64_t num_other_tensors = 0;
    for (const auto& [name, entry] : files_.entries()) {
      const std::string part_name = is_part ? language_model_tensor_name(name) : name;
      if (part_name.empty()) {
        ++num_other_tensors;
        continue;
      }
      const std::string name_without_prefix = canonical_name(part_name, architecture_->tensor_prefix());
      if (const auto [it, is_new] = full_names_.emplace(name_without_prefix, name); !is_new)
        refuse_input(entry.path, "unique tensor names",
                     str(it->second, " and ", name, ", which are both names of the tensor ", name_without_prefix),
                     str("remove the tensor ", it->second, " or ", name));
      names_without_prefix_.insert(name_without_prefix);
    }
    if (is_part)
      log_info(str(folder, ": only the language model is read; ", count_of(num_other_tensors, "tensor"),
                   " of the parts for images ignored"));
  }

  // Reads everything but the elements of the tensors. Must precede all other functions.
  void open() {
    Settings settings = architecture_->settings(config_, names_without_prefix_);
    for (const char* key : {"model.layers", kEncoderLayers})
      if (const Json layers = setting_or(settings, key, 0); layers > names_without_prefix_.size())
        refuse_input(config_.path() + ": number of layers",
                     str("at most ", names_without_prefix_.size(), ", the number of tensors"), layers.dump(),
                     "copy config.json from the source of the model");
    settings = read_vocabulary(std::move(settings));
    log_replaced_token_ids();
    log_ignored_keys();
    names_ = architecture_->tensor_names(settings);
    refuse_unknown_tensors(settings);
    model_.name = folder_;
    model_.toml = toml_of(settings);
    model_.tokenizers = std::move(tokenizers_);
    build();
    find_parameters();
    check_aliases();
  }

  const model::LoadedModel& model() const { return model_; }
  const std::string& companions() const { return companions_; }
  std::string model_type() const { return config_.value("model_type", ""); }

  void write_checkpoint(ByteSink& sink, io::Metadata metadata, io::DType dtype) const {
    int64_t max_elements = 0;
    for (const nn::Parameter& parameter : model_.model->parameters().all())
      max_elements = std::max(max_elements, parameter.master().numel());
    const auto buffer = std::make_unique_for_overwrite<float[]>(static_cast<size_t>(max_elements));
    std::vector<io::TensorView> views;
    std::set<std::string> non_finite_names;
    for (const nn::Parameter& parameter : model_.model->parameters().all())
      views.push_back({{parameter.name(), dtype, shape_of(parameter)},
                       nullptr,
                       [this, dtype, &parameter, &buffer, &non_finite_names] {
                         read_parameter(parameter, buffer.get());
                         const int64_t num_elements = parameter.master().numel();
                         if (!is_finite(buffer.get(), num_elements)) non_finite_names.insert(parameter.name());
                         convert_in_place(parameter, dtype, buffer.get(), static_cast<size_t>(num_elements));
                         return buffer.get();
                       }});
    io::write_checkpoint(sink, views, std::move(metadata));
    sink.close();
    warn_about(non_finite_names);
  }

  // Returns the model with its parameters.
  model::LoadedModel read_all() {
    c10::NoGradGuard no_gradient;
    model_.model = model::build_language_model(model_.config, model::vocabulary_sizes_of(model_.tokenizers), at::kCPU);
    nn::ParameterList& parameters = model_.model->parameters();
    std::set<std::string> non_finite_names;
    for (nn::Parameter& parameter : parameters.all()) {
      auto* elements = parameter.master().mutable_data_ptr<float>();
      read_parameter(parameter, elements);
      if (!is_finite(elements, parameter.master().numel())) non_finite_names.insert(parameter.name());
    }
    parameters.refresh_bf16_copies();
    warn_about(non_finite_names);
    return std::move(model_);
  }

 private:
  // Returns the place of an error of the converted configuration: the key of config.json from which the setting was
  // converted, or else the place in the converted configuration.
  std::string place_in_config(const std::string& place) const {
    for (const SettingPair& pair : architecture_->setting_pairs())
      for (const char* key : pair.multihead_keys)
        if (place == key || place.ends_with(str(' ', key))) return str(config_.path(), ": ", pair.huggingface_key);
    return place.starts_with(converted_name()) ? place : str(converted_name(), ": ", place);
  }
  std::string converted_name() const { return config_.path() + ", converted to TOML"; }

  // Builds the model on the device "meta". Errors of the converted configuration are reported as errors of config.json.
  void build() {
    try {
      Config config;
      config.load_text(model_.toml, converted_name());
      model_.config = model::ModelConfig::read(config);
      config.check_all_known();
      model_.model =
          model::build_language_model(model_.config, model::vocabulary_sizes_of(model_.tokenizers), at::kMeta);
    } catch (const Error& error) {
      const Problem& problem = error.problem();
      refuse_input(place_in_config(problem.where), problem.expected, without_default_remark(problem.found),
                   "correct config.json, or copy the folder again");
    }
  }

  // Reads the vocabularies and returns the settings. If the folder has more embedding rows than a vocabulary has
  // entries, the returned settings contain the number of rows. Throws Error(input) for missing rows, and for additional
  // rows unless `options_.accepts_padding_rows` is set.
  Settings read_vocabulary(Settings settings) {
    tokenizers_ = architecture_->tokenizers(folder_);
    const TensorNames names = architecture_->tensor_names(settings);
    const int64_t num_padded_rows = padded_rows_of(names, names.pairs.front(), tokenizers_.target->size());
    if (num_padded_rows > 0) {
      settings["model.vocabulary_rows"] = num_padded_rows;
      settings["model.score_padded_rows"] = true;
    }
    // The first pair is the only embedding, or the embedding of the target.
    const auto source_table = std::find_if(names.pairs.begin() + 1, names.pairs.end(), [](const TensorPair& pair) {
      return pair.multihead_names.front() == kSourceTable;
    });
    if (source_table != names.pairs.end())
      if (const int64_t num_rows = padded_rows_of(names, *source_table, tokenizers_.source_or_target().size());
          num_rows > 0)
        settings[kSourceRows] = num_rows;
    return settings;
  }

  // Returns the number of rows of a token embedding that has more rows than its vocabulary has entries; 0 if it has
  // equally many. Throws Error(input) for missing rows, and for additional rows unless `options_.accepts_padding_rows`
  // is set.
  int64_t padded_rows_of(const TensorNames& names, const TensorPair& pair, int64_t vocabulary_size) const {
    const io::TensorFiles::Entry& embedding = entry_of(names, pair);
    const int64_t num_embedding_rows = embedding.info.shape.empty() ? 0 : embedding.info.shape[0];
    if (num_embedding_rows < vocabulary_size ||
        (num_embedding_rows > vocabulary_size && !options_.accepts_padding_rows))
      refuse_input(embedding.path + ": " + embedding.info.name,
                   str("a row for each of the ", count_of(vocabulary_size, "entry"), " of the vocabulary"),
                   count_of(num_embedding_rows, "row"),
                   num_embedding_rows < vocabulary_size
                       ? "the vocabulary belongs to another model; copy the vocabulary files of this model"
                       : "if the rows are padding, keep them with --padded-vocabulary; otherwise the "
                         "vocabulary belongs to another model: copy the vocabulary files of this model");
    if (num_embedding_rows == vocabulary_size) return 0;
    log_info(
        str(num_embedding_rows - vocabulary_size,
            " embedding rows past the end of the vocabulary are kept, and are part of the softmax as in transformers"));
    return num_embedding_rows;
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

  const io::TensorFiles::Entry& entry_of(const TensorNames& names, const TensorPair& pair) const {
    const std::string& name_without_prefix = pair.huggingface_name;
    if (const io::TensorFiles::Entry* entry = find_entry(names, name_without_prefix)) return *entry;
    std::string expected = "the tensor " + name_without_prefix;
    for (const auto& [alias, original] : names.aliases)
      if (original == name_without_prefix) expected += " or " + alias;
    refuse_input(files_.entries().empty() ? folder_ : files_.entries().begin()->second.path, expected, "no such tensor",
                 pair.missing_advice != nullptr ? pair.missing_advice : "copy the folder again");
  }

  void log_replaced_token_ids() const {
    const Json token_ids = architecture_->token_ids(tokenizers_);
    for (const auto& [key, number] : token_ids.items())
      if (const Json config_value = config_.value(key, nullptr);
          !config_value.is_null() && config_value != number &&
          !(config_value.is_array() &&
            std::find(config_value.begin(), config_value.end(), number) != config_value.end()))
        log_warning(str(config_.path(), ": ", key, " is ", io::json_excerpt(config_value), "; using ", number.dump(),
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
      if (!architecture_->is_unused(name_without_prefix, settings)) {
        const std::string part = unsupported_part(name);
        refuse_input(files_.find(name)->path, "tensors of this model only",
                     str("the unknown tensor ", name, part.empty() ? "" : ", which belongs to ", part),
                     "copy the folder again, or use a model without this tensor");
      }
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

  // The tensor that contains a parameter.
  struct Location {
    const TensorPair* pair = nullptr;
    size_t index = 0;                               // index of the parameter in pair->multihead_names
    std::vector<Shape> shapes;                      // shapes of all parameters of the pair
    const io::TensorFiles::Entry* entry = nullptr;  // null: the parameter is initialised from the seed
  };

  // Finds the tensor of each parameter, and checks its shape.
  void find_parameters() {
    const std::set<std::string> initialised_components = missing_components();
    for (const std::string& component : initialised_components)
      log_warning(component + " is missing in the Hugging Face folder and is initialised from the seed (--seed)");
    std::map<std::string, Shape> shapes;  // by the name of the parameter
    for (const nn::Parameter& parameter : model_.model->parameters().all())
      shapes[parameter.name()] = shape_of(parameter);
    for (const TensorPair& pair : names_.pairs) {
      Location location;
      location.pair = &pair;
      for (const std::string& name : pair.multihead_names) {
        const auto shape = shapes.find(name);
        if (shape == shapes.end())  // a bug: tensor_names() and the model follow the same settings
          throw std::logic_error("the converted model has no parameter " + name);
        location.shapes.push_back(shape->second);
      }
      if (initialised_components.count(pair.component) == 0) {
        location.entry = &entry_of(names_, pair);
        const io::TensorInfo& info = location.entry->info;
        if (const Shape shape = tensor_shape(pair, location.shapes); info.shape != shape)
          refuse_input(location.entry->path + ": " + info.name,
                       "the shape " + shape_text(shape) + ", as in config.json", "the shape " + shape_text(info.shape),
                       "config.json and the tensors belong to different models; copy the folder again");
      }
      for (; location.index < pair.multihead_names.size(); ++location.index)
        locations_[pair.multihead_names[location.index]] = location;
    }
    for (const auto& [name, shape] : shapes)
      if (locations_.count(name) == 0) throw std::logic_error(name + " has no counterpart in transformers");
  }

  // Copies the elements of a parameter from its tensor, or its initial values, to `out`.
  void read_parameter(const nn::Parameter& parameter, float* out) const {
    const Location& location = locations_.at(parameter.name());
    if (location.entry == nullptr) {
      nn::ParameterList list(at::kCPU);
      const at::Tensor& values = list.add(parameter.name(), shape_of(parameter), parameter.traits()).master();
      list.initialise(options_.seed);
      std::copy_n(values.const_data_ptr<float>(), values.numel(), out);
      return;
    }
    const io::TensorFiles::Reader reader = files_.open(location.entry->info.name);
    huggingface::read_parameter(
        *location.pair, location.shapes, location.index,
        [&](int64_t first, int64_t count, float* elements) { reader.read(first, count, elements); }, out);
    reader.finish();
  }

  // Converts the elements of a parameter to the type `dtype`, F32, F16 or BF16, in the memory of the elements.
  void convert_in_place(const nn::Parameter& parameter, io::DType dtype, float* elements, size_t count) const {
    if (dtype == io::DType::f16) io::require_half_range(str(folder_, ": ", parameter.name()), elements, count);
    io::from_fp32(dtype, elements, count, elements);
  }

  static bool is_finite(const float* elements, int64_t count) {
    return std::all_of(elements, elements + count, [](float x) { return std::isfinite(x); });
  }

  // Warns about the parameters with NaN or infinite values.
  void warn_about(const std::set<std::string>& non_finite_names) const {
    if (!non_finite_names.empty())
      log_warning(str(folder_, ": found ", non_finite_names.size(), " of ",
                      count_of(locations_.size(), "parameter tensor"),
                      " with NaN or infinite values, the first of them ", *non_finite_names.begin()));
  }

  void check_aliases() const {
    for (const auto& [alias, original] : names_.aliases) {
      if (names_without_prefix_.count(alias) == 0 || names_without_prefix_.count(original) == 0) continue;
      const io::TensorFiles::Entry &a = *files_.find(full_names_.at(alias)),
                                   &b = *files_.find(full_names_.at(original));
      if (files_.are_equal(a.info.name, b.info.name)) continue;
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
  JsonConfig whole_config_;  // config.json
  JsonConfig config_;        // settings of the language model: config.json, or a part of it
  std::unique_ptr<Architecture> architecture_;
  io::TensorFiles files_;
  std::string companions_;
  std::map<std::string, std::string> full_names_;  // full names in the folder, by canonical_name()
  std::set<std::string> names_without_prefix_;     // canonical names of all tensors in the folder
  text::Tokenizers tokenizers_;
  TensorNames names_;
  model::LoadedModel model_;
  std::map<std::string, Location> locations_;  // by the name of the parameter
};

Folder::Folder(const std::string& folder, const ReadOptions& options)
    : reader_(std::make_unique<FolderReader>(folder, options)) {
  reader_->open();
}

Folder::~Folder() = default;

const model::LoadedModel& Folder::model() const { return reader_->model(); }

std::string Folder::model_type() const { return reader_->model_type(); }

const std::string& Folder::companions() const { return reader_->companions(); }

void Folder::write_checkpoint(ByteSink& sink, io::Metadata metadata, io::DType dtype) const {
  reader_->write_checkpoint(sink, std::move(metadata), dtype);
}

model::LoadedModel read_folder(const std::string& folder, const ReadOptions& options) {
  return Folder(folder, options).reader_->read_all();
}

}  // namespace mh::conversion
