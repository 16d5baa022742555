// Models from and to checkpoints.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "io/checkpoint.h"
#include "model/model_config.h"
#include "text/tokenizers.h"

namespace mh::model {

struct LoadedModel {
  std::string name;  // of the file
  ModelConfig config;
  std::string toml;  // the whole resolved configuration, [train] included
  text::Tokenizers tokenizers;
  std::unique_ptr<LanguageModel> model;
};

// Builds the model a checkpoint describes and fills it. Error(input) for a file that is no checkpoint of ours, and for
// tensors that are missing, unknown or of another shape, by name. Training state is ignored. `overrides` change keys of
// [model] and [attention] ("model.transformer-xl.memory=640") that change no parameter; Error(usage) for others.
LoadedModel load_model(const std::string& path, at::Device device, const std::vector<std::string>& overrides = {});
LoadedModel load_model(const io::Checkpoint& checkpoint, at::Device device,
                       const std::vector<std::string>& overrides = {});

// A checkpoint's configuration, checked as above.
ModelConfig config_of(const io::Checkpoint& checkpoint);
Vocabularies sizes_of(const text::Tokenizers& tokenizers);

// Error(usage), about the option `where`, unless both build the same parameters, by name.
void require_same_parameters(const ModelConfig& checkpoint, const ModelConfig& config, const Vocabularies& vocabularies,
                             const std::string& where);

// Fills every parameter; the same errors.
void load_parameters(const io::Checkpoint& checkpoint, nn::ParameterList& parameters);

// fp32 and int64 tensors as views to write. What is on a GPU is copied here; what is in main memory must stay as it is
// until written.
class Views {
 public:
  void add(const std::string& name, const at::Tensor& tensor);
  void add(const nn::ParameterList& parameters);
  const std::vector<io::TensorView>& all() const { return views_; }

 private:
  std::vector<at::Tensor> held_;
  std::vector<io::TensorView> views_;
};

// Writes the parameters as a checkpoint, and closes the sink.
void write_parameters(ByteSink& sink, const nn::ParameterList& parameters, io::Metadata metadata);

// Copies a checkpoint's tensor into one of the same shape and type.
void load_tensor(const io::Checkpoint& checkpoint, const std::string& name, at::Tensor& into);

// Of the tensors of a training state that are no parameters.
constexpr const char* kOptimizerPrefix = "optimizer.";
constexpr const char* kStatePrefixes[] = {kOptimizerPrefix, "memory."};
bool is_state(const std::string& tensor);

}  // namespace mh::model
