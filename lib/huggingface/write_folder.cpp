// Writes a model as a Hugging Face folder, after a check that transformers can represent it.
#include <c10/core/GradMode.h>

#include <algorithm>
#include <filesystem>

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "base/text.h"
#include "huggingface/model.h"
#include "io/tensor_files.h"
#include "nn/aten.h"

namespace mh::huggingface {

namespace {

// Returns whether a changed setting ("key: old -> new") affects training only. Such settings are logged if config.json
// cannot store them.
bool is_of_training(const std::string& change) {
  return change.starts_with("model.dropout") || change.starts_with("model.init:") ||
         change.find("dropout:") != std::string::npos;
}

// Returns whether a changed setting ("key: old -> new") describes head sizes. Equal sizes can be written in several
// ways, so the shapes of the parameters are compared instead.
bool is_of_sizes(const std::string& change) {
  for (const char* key : {".head_size:", ".value_size:", ".value_heads:", ".output_heads:"})
    if (change.find(key) != std::string::npos) return true;
  return false;
}

class Writer {
 public:
  explicit Writer(const model::LoadedModel& loaded)
      : loaded_(loaded),
        settings_(settings_of(loaded.config.toml())),
        architecture_(find_architecture()),
        names_(architecture_->names(settings_)),
        rows_(parameter(names_.pairs.front().multihead_names.front()).master().size(0)) {}

  void write(const std::string& folder) const {
    Json config = architecture_->config(settings_);
    config["vocab_size"] = rows_;
    config.update(architecture_->token_ids(loaded_.tokenizers));
    check(config);
    auto files = architecture_->files_of(loaded_.tokenizers, settings_, loaded_.name);
    files["config.json"] = config.dump(2) + "\n";
    for (const auto& [name, text] : files) write_file_atomically(str(folder, "/", name), text);
    write_tensors(folder + "/model.safetensors");
    log_info("saved as " + config.at("architectures").at(0).get<std::string>() +
             "; all settings and parameters are preserved");
  }

 private:
  [[noreturn]] void refuse(const std::string& expected, const std::string& found) const {
    throw Error(Exit::input, Problem{loaded_.name, expected, found, "keep the model as a multihead checkpoint"});
  }

  std::unique_ptr<Architecture> find_architecture() const {
    const Json& backbone = settings_.at("model.backbone");
    std::vector<std::string> known;
    for (const std::string& name : architectures().names()) {
      auto one = architectures().make(name, "architecture");
      if (backbone == one->backbone()) return one;
      known.push_back(one->backbone());
    }
    refuse("a model that transformers supports: model.backbone " + join(known, " or "), backbone.dump());
  }

  const nn::Parameter& parameter(const std::string& name) const {
    for (const nn::Parameter& p : loaded_.model->parameters().all())
      if (p.name() == name) return p;
    refuse("the parameter " + name + ", which transformers requires for this architecture",
           "no parameter of this name");
  }

  // Throws Error(input) unless the conversion of config.json back to a multihead model gives the settings and parameter
  // shapes of the written model.
  void check(const Json& config) const {
    std::set<std::string> theirs;
    for (const TensorPair& pair : names_.pairs) theirs.insert(pair.huggingface_name);
    Settings settings;
    try {
      settings = architecture_->settings({config.dump(), "config.json"}, theirs);
    } catch (const Error& error) {
      refuse("a model that transformers supports", error.what());
    }
    const int64_t entries = loaded_.tokenizers.target->size();
    settings["model.vocabulary_rows"] = rows_ > entries ? Json(rows_) : settings_.at("model.vocabulary_rows");
    settings["model.score_padded_rows"] = rows_ > entries ? Json(true) : settings_.at("model.score_padded_rows");
    Config read;
    read.load_text(toml_of(settings), "config.json");
    const model::ModelConfig back = model::ModelConfig::read(read);
    std::vector<std::string> others, training;
    for (const std::string& change : changes(loaded_.config.toml(), back.toml(), {"model.", "attention."}))
      if (is_of_training(change)) training.push_back(change);
      else if (!is_of_sizes(change)) others.push_back(change);
    if (!others.empty()) refuse("settings that transformers supports", join(others, "; "));
    const auto model = model::build_language_model(back, model::sizes_of(loaded_.tokenizers), at::kMeta);
    for (const nn::Parameter& ours : loaded_.model->parameters().all()) {
      const nn::Parameter* read_parameter = model->parameters().find(ours.name());
      if (read_parameter == nullptr || read_parameter->master().sizes() != ours.master().sizes())
        refuse("the parameters of the architecture in transformers",
               str(ours.name(), " ", shape_text(ours.master().sizes()), ", in transformers ",
                   read_parameter == nullptr ? "none" : shape_text(read_parameter->master().sizes())));
    }
    for (const std::string& change : training) log_info("config.json does not store the training setting " + change);
  }

  void write_tensors(const std::string& path) const {
    model::CheckpointTensors views;
    for (const TensorPair& pair : names_.pairs) {
      std::vector<at::Tensor> ours;
      for (const std::string& name : pair.multihead_names) ours.push_back(parameter(name).master().detach());
      at::Tensor all = ours.size() == 1 ? ours.front() : at::cat(ours);
      if (pair.transposed) all = all.t().contiguous();
      std::vector<std::string> same{pair.huggingface_name};
      for (const auto& [copy, of] : names_.copies)
        if (of == pair.huggingface_name && names_.ineffective.count(copy) > 0) same.push_back(copy);
      for (const std::string& name : same)
        views.add((architecture_->is_of_head(name) ? "" : architecture_->prefix()) + name, all);
    }
    auto sink = open_sink(path);
    io::write_checkpoint(*sink, views.all(), {{"format", "pt"}});
    sink->close();
  }

  const model::LoadedModel& loaded_;
  Settings settings_;
  std::unique_ptr<Architecture> architecture_;
  TensorNames names_;
  int64_t rows_;
};

}  // namespace

void write_folder(const model::LoadedModel& loaded, const std::string& folder) {
  namespace fs = std::filesystem;
  if (fs::exists(folder))
    throw Error(Exit::usage,
                Problem{folder, "a new folder", "an existing folder", "remove it, or choose another name"});
  const Writer writer(loaded);
  const std::string part = folder + ".part";
  std::error_code error;
  if (!fs::create_directory(part, error))
    throw Error(Exit::failed, Problem{part, "a new folder", error ? error.message() : "an existing folder",
                                      error ? "" : "remove the folder, which an interrupted conversion left"});
  try {
    writer.write(part);
    fs::rename(part, folder);
  } catch (...) {
    fs::remove_all(part, error);
    throw;
  }
}

}  // namespace mh::huggingface
