// Loads models from checkpoints and writes their parameters to checkpoints.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "io/checkpoint.h"
#include "model/model_config.h"
#include "text/tokenizers.h"

namespace mh::model {

struct LoadedModel {
  std::string name;  // name of the checkpoint's file
  ModelConfig config;
  std::string toml;  // the whole resolved configuration, [train] included
  text::Tokenizers tokenizers;
  std::unique_ptr<LanguageModel> model;
};

// Builds the model that a checkpoint describes and loads its parameters; ignores training state. Throws Error(input) if
// the file is not a checkpoint of this project, or if a tensor, which the error names, is missing, unknown or of
// another shape. `overrides` set keys of [model] and [attention] that leave the parameters unchanged
// ("model.transformer-xl.memory=640"); other keys throw Error(usage).
LoadedModel load_model(const std::string& path, at::Device device, const std::vector<std::string>& overrides = {});
LoadedModel load_model(const io::Checkpoint& checkpoint, at::Device device,
                       const std::vector<std::string>& overrides = {});

// Returns the configuration of a checkpoint. Throws Error(input) if it is invalid.
ModelConfig config_of(const io::Checkpoint& checkpoint);
Vocabularies sizes_of(const text::Tokenizers& tokenizers);

// Throws Error(usage) about the option `where` unless both configurations build the same parameters, by name, shape and
// head counts.
void require_same_parameters(const ModelConfig& checkpoint, const ModelConfig& config, const Vocabularies& vocabularies,
                             const std::string& where);

// Loads every parameter. Throws Error(input) like load_model() for missing, unknown or mismatched tensors.
void load_parameters(const io::Checkpoint& checkpoint, nn::ParameterList& parameters);

// Views of fp32 and int64 tensors, for writing a checkpoint. Tensors on a GPU are copied to main memory when they are
// added. Tensors in main memory are not copied and must not change until they are written.
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

// Copies a tensor of the checkpoint to `into`. Throws Error(input) if it is missing or differs in shape or type.
void load_tensor(const io::Checkpoint& checkpoint, const std::string& name, at::Tensor& into);

// The name prefixes of tensors of a training state that are not parameters.
constexpr const char* kOptimizerPrefix = "optimizer.";
constexpr const char* kStatePrefixes[] = {kOptimizerPrefix, "memory."};
bool is_state(const std::string& tensor);

}  // namespace mh::model
