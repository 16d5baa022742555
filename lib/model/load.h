// Loads models from checkpoints and writes their parameters to checkpoints.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/file.h"
#include "io/checkpoint.h"
#include "model/model_config.h"
#include "text/tokenizers.h"

namespace mh::model {

// Whether a loaded model has the fp32 masters of its parameters.
enum class Masters {
  present,  // for training, and for tools that read, change or write parameters
  absent    // evaluation in bf16 only: parameters store the values that forward passes read
            // (nn::Parameter::set_evaluation_values()). bf16 tensors of a mapped checkpoint are used in place.
};

struct LoadedModel {
  std::string name;  // path of the checkpoint, or "standard input"
  ModelConfig config;
  std::string toml;  // resolved configuration in the checkpoint, including [train]; without overrides
  text::Tokenizers tokenizers;
  std::unique_ptr<LanguageModel> model;
  // model_type of the Hugging Face folder from which the parameters come, also if they were trained since; "": none.
  std::string huggingface_type = {};
  // Other parts of this folder, such as generation_config.json (huggingface::read_companions()); "": none.
  std::string huggingface_companions = {};
  std::shared_ptr<const MappedFile> mapped_file = {};  // file of which parameters may be mapped pages; null: none
  // Files of which parameters of the other members of an ensemble are mapped pages (model/ensemble.h).
  std::vector<std::shared_ptr<const MappedFile>> member_files = {};
  // Throws Error(input) if another program has changed a file of which parameters are mapped pages
  // (MappedFile::require_unchanged()). Tools call this function before they report results of the model.
  void require_unchanged_file() const;
};

// Builds the model that a checkpoint describes and loads the model's parameters; ignores the training state.
// `overrides`: assignments in the syntax of --set to keys of [model] and [attention] that leave all parameters
// unchanged ("model.transformer-xl.memory=640"). The tensors of parameters may be fp32, fp16 or bf16. A model without
// masters computes the same bits as a model with masters and bf16 copies. Throws Error(input) if the file is not a
// checkpoint of this project, or if a tensor, which the message names, is missing, unknown or of another shape or type;
// Error(usage) for an override that names a key of another section or an unknown key, has an invalid value, or changes
// a parameter.
LoadedModel load_model(const std::string& path, at::Device device, const std::vector<std::string>& overrides = {},
                       Masters masters = Masters::present);
LoadedModel load_model(const io::Checkpoint& checkpoint, at::Device device,
                       const std::vector<std::string>& overrides = {}, Masters masters = Masters::present);

// Returns the configuration in a checkpoint. Throws Error(input) if the configuration is missing or invalid.
ModelConfig config_of(const io::Checkpoint& checkpoint);
// Returns the sizes of the vocabularies of `tokenizers`.
VocabularySizes vocabulary_sizes_of(const text::Tokenizers& tokenizers);

// Throws Error(usage) unless `checkpoint_config`, the configuration of the checkpoint `checkpoint_name`, and `config`
// build the same parameters: the same names, shapes and head counts. `option_name`: the option that set `config`, for
// the message. Throws Error(input) if no model can be built with `checkpoint_config`.
void require_same_parameters(const std::string& checkpoint_name, const ModelConfig& checkpoint_config,
                             const ModelConfig& config, const VocabularySizes& vocabulary_sizes,
                             const std::string& option_name);

// Copies all parameters from the checkpoint, converts them to fp32, and warns about NaN and infinite values. To a
// master that the processes divide (nn::Parameter::divide_master()), copies only the elements that this process holds.
// Releases the mapped pages of each tensor, so that the memory has one tensor of the file at a time. Throws
// Error(input) if a tensor is missing, unknown or of another shape or type, or if another program has shortened the
// file.
void load_parameters(const io::Checkpoint& checkpoint, nn::ParameterList& parameters);
// Copies one parameter like load_parameters(), without a warning.
void load_parameter(const io::Checkpoint& checkpoint, nn::Parameter& parameter);

// A list of fp32 and int64 tensors to write to a checkpoint. add() copies GPU tensors to main memory. Tensors in main
// memory are not copied, so their values must not change until the checkpoint is written.
class CheckpointTensors {
 public:
  void add(const std::string& name, const at::Tensor& tensor);
  void add(const nn::ParameterList& parameters);
  // Adds all parameters, converted to the type `type`, F32, F16 or BF16, one at a time when the checkpoint is written.
  // The conversion throws Error(input) for finite numbers past the range of F16.
  void add(const nn::ParameterList& parameters, io::DType type);
  // Adds a tensor whose data `produce` returns when the checkpoint is written (io::TensorView::produce).
  void add(const std::string& name, std::vector<int64_t> shape, std::function<const void*()> produce,
           io::DType type = io::DType::f32);
  const std::vector<io::TensorView>& views() const { return views_; }

 private:
  std::vector<at::Tensor> tensors_;  // keep the memory of views_ alive
  std::vector<io::TensorView> views_;
};

// Writes a checkpoint with the parameters, as tensors of the type `type` (F32, F16 or BF16), and `metadata` to `sink`,
// and closes the sink.
void write_parameters(ByteSink& sink, const nn::ParameterList& parameters, io::Metadata metadata,
                      io::DType type = io::DType::f32);

// Returns the type in LibTorch of the elements of a parameter in a checkpoint; nullopt unless `type` is F32, F16 or
// BF16.
std::optional<at::ScalarType> parameter_scalar_type(io::DType type);

// Copies the tensor `name` of the checkpoint to `destination`. Throws Error(input) if the tensor is missing, or if both
// tensors differ in shape or type.
void load_tensor(const io::Checkpoint& checkpoint, const std::string& name, at::Tensor& destination);

// Copies the elements first, …, first + destination.numel() - 1 of the tensor `name`, flattened, to the
// one-dimensional `destination`. Throws Error(input) if the tensor is missing or does not have this shape and the type
// of `destination`.
void load_elements(const io::Checkpoint& checkpoint, const std::string& name, at::IntArrayRef shape, int64_t first,
                   at::Tensor& destination);

// Name prefixes of all tensors in a training state except the parameters.
constexpr const char* kOptimizerPrefix = "optimizer.";
constexpr const char* kStatePrefixes[] = {kOptimizerPrefix, "memory."};
// Returns whether a tensor of this name is training state, not a parameter.
bool is_training_state(const std::string& name);

}  // namespace mh::model
