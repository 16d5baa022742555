// Reads a Hugging Face folder: converts config.json and copies the tensors to the parameters of a model.
#include <c10/core/GradMode.h>

#include <algorithm>
#include <filesystem>

#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "huggingface/model.h"
#include "io/tensor_files.h"
#include "nn/aten.h"
#include "nn/finite.h"

namespace mh::huggingface {

namespace {

// Keys of config.json that are ignored without a warning: bookkeeping of transformers, and settings of text generation.
constexpr const char* kHousekeeping[] = {"_name_or_path",
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

class Reader {
 public:
  Reader(const std::string& folder, const ReadOptions& options)
      : folder_(folder),
        options_(options),
        config_(read_config(folder)),
        architecture_(find_architecture()),
        files_(io::open_model_files(folder)) {
    for (const auto& [name, entry] : files_.all()) {
      const std::string plain = plain_name(name, architecture_->prefix());
      if (const auto [it, fresh] = full_names_.emplace(plain, name); !fresh)
        throw Error(Exit::input, Problem{entry.path, "unique tensor names", it->second + " and " + name, ""});
      plain_names_.insert(plain);
    }
  }

  model::LoadedModel read() {
    Settings settings = architecture_->settings(config_, plain_names_);
    if (const Json& layers = settings.at("model.layers"); layers > plain_names_.size())
      throw Error(Exit::input,
                  Problem{config_.path() + ": number of layers",
                          str("at most ", plain_names_.size(), ", the number of tensors"), layers.dump(), ""});
    settings = with_vocabulary_rows(std::move(settings));
    log_token_ids();
    log_ignored_keys();
    names_ = architecture_->names(settings);
    check_unknown(settings);
    model::LoadedModel loaded;
    loaded.name = folder_;
    loaded.toml = toml_of(settings);
    loaded.tokenizers = std::move(tokenizers_);
    build(loaded);
    fill(loaded.model->parameters());
    check_copies();
    return loaded;
  }

 private:
  static ConfigFile read_config(const std::string& folder) {
    const std::string path = folder + "/config.json";
    if (!std::filesystem::exists(path))
      throw Error(Exit::input, Problem{folder, "a Hugging Face folder with config.json", "no config.json",
                                       "give the folder that save_pretrained wrote"});
    return {read_text_file(path), path};
  }
  std::unique_ptr<Architecture> find_architecture() const {
    std::vector<Json> known;
    for (const std::string& name : architectures().names()) known.emplace_back(name);
    config_.require("model_type", "", known, "other architectures are not supported");
    return architectures().make(config_.value("model_type", "").get<std::string>(), "model_type");
  }

  // Builds the model. Errors of the converted configuration are reported as errors of config.json.
  void build(model::LoadedModel& loaded) const {
    try {
      Config config;
      config.load_text(loaded.toml, config_.path());
      loaded.config = model::ModelConfig::read(config);
      loaded.model = model::build_language_model(loaded.config, model::sizes_of(loaded.tokenizers), at::kCPU);
    } catch (const Error& error) {
      throw Error(Exit::input, config_.path() + ", converted to TOML: " + error.what());
    }
  }

  // Reads the vocabulary, and returns the settings with the number of embedding rows in the file if it exceeds the size
  // of the vocabulary. Throws Error(input) for missing rows, and for additional rows unless options_.padded is set.
  Settings with_vocabulary_rows(Settings settings) {
    tokenizers_ = architecture_->tokenizers(folder_);
    const TensorNames names = architecture_->names(settings);
    const io::TensorFiles::Entry& found = entry_of(names, names.pairs.front().huggingface_name);
    const int64_t rows = found.info.shape.empty() ? 0 : found.info.shape[0], entries = tokenizers_.target->size();
    if (rows < entries || (rows > entries && !options_.padded))
      throw Error(Exit::input,
                  Problem{found.path + ": " + found.info.name,
                          str("a row for each of the ", entries, " entries of the vocabulary"), str(rows, " rows"),
                          rows < entries ? "the vocabulary belongs to another model"
                                         : "if the rows are padding, keep them with --padded-vocabulary; otherwise the "
                                           "vocabulary belongs to another model"});
    if (rows == entries) return settings;
    settings["model.vocabulary_rows"] = rows;
    settings["model.score_padded_rows"] = true;
    log_info(
        str(rows - entries,
            " embedding rows past the end of the vocabulary are kept, and are part of the softmax as in transformers"));
    return settings;
  }

  // Returns the file's tensor called `plain`, or else a tensor under an alternative name; null if the file has neither.
  const io::TensorFiles::Entry* find_entry(const TensorNames& names, const std::string& plain) const {
    if (const auto found = full_names_.find(plain); found != full_names_.end()) return files_.find(found->second);
    for (const auto& [copy, of] : names.copies)
      if (const auto found = full_names_.find(copy); of == plain && found != full_names_.end())
        return files_.find(found->second);
    return nullptr;
  }

  const io::TensorFiles::Entry& entry_of(const TensorNames& names, const std::string& plain) const {
    if (const io::TensorFiles::Entry* entry = find_entry(names, plain)) return *entry;
    std::string expected = "the tensor " + plain;
    for (const auto& [copy, of] : names.copies)
      if (of == plain) expected += " or " + copy;
    throw Error(Exit::input,
                Problem{files_.all().empty() ? folder_ : files_.all().begin()->second.path, expected,
                        "no tensor of this name", did_you_mean(plain, {plain_names_.begin(), plain_names_.end()})});
  }

  void log_token_ids() const {
    const Json numbers = architecture_->token_ids(tokenizers_);
    for (const auto& [key, number] : numbers.items())
      if (const Json config_value = config_.value(key, nullptr); !config_value.is_null() && config_value != number)
        log_warning(str(config_.path(), ": ", key, " is ", config_value.dump(), "; using ", number.dump(),
                        " from the tokenizer files"));
  }

  void log_ignored_keys() const {
    std::vector<std::string> unread_keys;
    for (const std::string& key : config_.unread_keys())
      if (std::find(std::begin(kHousekeeping), std::end(kHousekeeping), key) == std::end(kHousekeeping))
        unread_keys.push_back(key);
    if (!unread_keys.empty()) log_warning(config_.path() + ": ignored unknown keys: " + join(unread_keys, ", "));
  }

  void check_unknown(const Settings& settings) const {
    std::vector<std::string> known;
    for (const TensorPair& pair : names_.pairs) known.push_back(pair.huggingface_name);
    for (const auto& [copy, of] : names_.copies) known.push_back(copy);
    std::vector<std::string> left_out;
    for (const auto& [plain, name] : full_names_) {
      if (std::find(known.begin(), known.end(), plain) != known.end() || architecture_->is_buffer(plain)) continue;
      if (!architecture_->is_left_out(plain, settings))
        throw Error(Exit::input, Problem{files_.find(name)->path, "tensors of this model only",
                                         "the unknown tensor " + name, did_you_mean(plain, known)});
      left_out.push_back(name);
    }
    if (!left_out.empty()) log_info("ignored tensors that this model does not use: " + join(left_out, ", "));
  }

  // Returns the optional components (TensorPair::part) of which the file has no tensor.
  std::set<std::string> missing_components() const {
    std::set<std::string> parts;
    for (const TensorPair& pair : names_.pairs)
      if (!pair.part.empty()) parts.insert(pair.part);
    for (const TensorPair& pair : names_.pairs)
      if (find_entry(names_, pair.huggingface_name) != nullptr) parts.erase(pair.part);
    return parts;
  }

  void fill(nn::ParameterList& parameters) const {
    const std::set<std::string> from_seed = missing_components();
    if (!from_seed.empty()) parameters.initialise(options_.seed);
    for (const std::string& part : from_seed) log_warning(part + " is missing; it is initialised from the seed");
    std::set<std::string> named;
    for (const TensorPair& pair : names_.pairs) {
      named.insert(pair.multihead_names.begin(), pair.multihead_names.end());
      if (from_seed.count(pair.part) == 0) fill_from(pair, parameters);
    }
    for (const nn::Parameter& parameter : parameters.all())
      if (named.count(parameter.name()) == 0)
        throw Error(Exit::failed, parameter.name() + " has no counterpart in transformers");
    parameters.refresh_copies();
    nn::warn_not_finite(folder_, parameters);
  }

  void fill_from(const TensorPair& pair, nn::ParameterList& parameters) const {
    std::vector<nn::Parameter*> targets;
    for (const std::string& name : pair.multihead_names) {
      targets.push_back(parameters.find(name));
      if (targets.back() == nullptr)
        throw Error(Exit::input, Problem{config_.path(), "settings of a model with the tensor " + pair.huggingface_name,
                                         "settings of a model without this tensor", ""});
    }
    const io::TensorFiles::Entry& entry = entry_of(names_, pair.huggingface_name);
    std::vector<int64_t> shape = huggingface_shape(pair, targets);
    if (entry.info.shape != shape)
      throw Error(Exit::input,
                  Problem{entry.path + ": " + entry.info.name, shape_text(shape) + ", as in config.json",
                          shape_text(entry.info.shape), "config.json and the tensors belong to different models"});
    std::vector<float> numbers = files_.floats(entry.info.name);
    c10::NoGradGuard no_gradient;
    at::Tensor all = at::from_blob(numbers.data(), shape, at::kFloat);
    if (pair.transposed) all = all.t();
    int64_t row = 0;
    for (nn::Parameter* parameter : targets) {
      const int64_t rows = parameter->master().size(0);
      parameter->master().copy_(all.narrow(0, row, rows));
      row += rows;
    }
  }

  static std::vector<int64_t> huggingface_shape(const TensorPair& pair, const std::vector<nn::Parameter*>& targets) {
    std::vector<int64_t> shape = targets.front()->master().sizes().vec();
    shape[0] = 0;
    for (const nn::Parameter* parameter : targets) shape[0] += parameter->master().size(0);
    if (pair.transposed) std::swap(shape[0], shape[1]);
    return shape;
  }

  void check_copies() const {
    for (const auto& [copy, of] : names_.copies) {
      if (plain_names_.count(copy) == 0 || plain_names_.count(of) == 0) continue;
      const io::TensorFiles::Entry &a = *files_.find(full_names_.at(copy)), &b = *files_.find(full_names_.at(of));
      if (a.info.shape == b.info.shape && files_.floats(a.info.name) == files_.floats(b.info.name)) continue;
      if (names_.ineffective.count(copy) > 0) log_info(a.info.name + " is ignored in favour of " + b.info.name);
      else
        throw Error(Exit::input,
                    Problem{a.path + ": " + a.info.name, "the values of " + b.info.name, "different values",
                            copy.ends_with(".bias") ? "keep only the tensor that the model was trained with"
                                                    : "if the output layer is not tied to the embedding, set "
                                                      "tie_word_embeddings = false in config.json"});
    }
  }

  std::string folder_;
  ReadOptions options_;
  ConfigFile config_;
  std::unique_ptr<Architecture> architecture_;
  io::TensorFiles files_;
  std::map<std::string, std::string> full_names_;  // full name in the file by plain name (plain_name())
  std::set<std::string> plain_names_;              // plain names of all tensors in the file
  text::Tokenizers tokenizers_;
  TensorNames names_;
};

}  // namespace

model::LoadedModel read_folder(const std::string& folder, const ReadOptions& options) {
  return Reader(folder, options).read();
}

}  // namespace mh::huggingface
