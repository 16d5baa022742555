// Loads models and parameters from checkpoints, checks names, shapes and overrides, and writes parameters.
#include "model/load.h"

#include <c10/core/GradMode.h>
#include <c10/util/accumulate.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <optional>

#include "base/error.h"
#include "base/text.h"
#include "io/float_formats.h"
#include "io/origin.h"
#include "nn/finite.h"

namespace mh::model {

namespace {

// Returns the element type of `tensor` in the checkpoint format; empty unless it is fp32 (parameters, optimiser state)
// or int64 (positions of memories).
std::optional<io::DType> dtype_of(const at::Tensor& tensor) {
  if (tensor.scalar_type() == at::kFloat) return io::DType::f32;
  if (tensor.scalar_type() == at::kLong) return io::DType::i64;
  return std::nullopt;
}

// Returns `config`, the configuration of the checkpoint `checkpoint_name`, after the assignments `overrides`, which
// have the syntax of the option --set. Throws Error(usage) for a key outside of [model] and [attention], for an unknown
// key, and for overrides that add, remove or reshape a parameter.
ModelConfig apply_overrides(const std::string& checkpoint_name, const ModelConfig& config,
                            const std::vector<std::string>& overrides, const VocabularySizes& vocabulary_sizes) {
  Config new_config;
  new_config.load_text(config.toml(), "the checkpoint's configuration");
  for (const std::string& assignment : overrides) {
    if (assignment.rfind("model.", 0) != 0 && assignment.rfind("attention.", 0) != 0)
      refuse_usage("--set", "a key of [model] or [attention], or of the section of the model's task", assignment,
                   str("leave ", assignment, " out"));
    new_config.set(assignment);
  }
  ModelConfig result = ModelConfig::read(new_config);
  require_same_parameters(checkpoint_name, config, result, vocabulary_sizes, str("--set ", join(overrides, ", ")));
  // Unknown keys are checked last: if an override replaces a stage, the keys of the replaced stage are unknown, but the
  // error should name the parameters that change.
  new_config.check_all_known();
  return result;
}

}  // namespace

void require_same_parameters(const std::string& checkpoint_name, const ModelConfig& checkpoint_config,
                             const ModelConfig& config, const VocabularySizes& vocabulary_sizes,
                             const std::string& option_name) {
  struct Layout {
    std::string shape;            // "the shape (32, 16)"
    std::string heads_and_shape;  // "4 heads and the shape (32, 16)"; equals `shape` if there is no head axis
  };
  auto layouts = [&](const ModelConfig& c) {
    std::map<std::string, Layout> layout_of_name;
    const auto model = build_language_model(c, vocabulary_sizes, at::kMeta);
    for (const nn::Parameter& p : model->parameters().all()) {
      std::vector<std::string> head_counts;
      for (const nn::HeadAxis& axis : p.traits().head_axes) head_counts.push_back(std::to_string(axis.heads));
      const std::string shape = "the shape " + shape_text(p.master().sizes());
      layout_of_name[p.name()] = {shape,
                                  head_counts.empty() ? shape : str(join(head_counts, " by "), " heads and ", shape)};
    }
    return layout_of_name;
  };
  const auto old_layouts =
      read_stored_config(checkpoint_name, io::kEditedCheckpointAdvice, [&] { return layouts(checkpoint_config); });
  const auto new_layouts = layouts(config);
  auto refuse = [&](const std::string& expected, const std::string& found) {
    refuse_usage(option_name, expected, found,
                 "set only keys that keep the names, shapes and head counts of all parameters");
  };
  for (const auto& [name, layout] : old_layouts)
    if (auto it = new_layouts.find(name); it == new_layouts.end())
      refuse(str("the checkpoint's parameter ", name, " with ", layout.shape),
             "no parameter of this name in the configured model");
    else if (it->second.heads_and_shape != layout.heads_and_shape)
      refuse(str("the parameter ", name, " with ", layout.heads_and_shape, ", as in the checkpoint"),
             str(it->second.heads_and_shape, " in the configured model"));
  for (const auto& [name, layout] : new_layouts)
    if (old_layouts.count(name) == 0)
      refuse("only parameters that the checkpoint contains", str("the new parameter ", name, " with ", layout.shape));
}

std::optional<at::ScalarType> parameter_scalar_type(io::DType type) {
  if (type == io::DType::f32) return at::kFloat;
  if (type == io::DType::f16) return at::kHalf;
  if (type == io::DType::bf16) return at::kBFloat16;
  return std::nullopt;
}

bool is_training_state(const std::string& name) {
  return std::any_of(std::begin(kStatePrefixes), std::end(kStatePrefixes),
                     [&](const char* prefix) { return name.rfind(prefix, 0) == 0; });
}

void CheckpointTensors::add(const std::string& name, const at::Tensor& tensor) {
  const auto type = dtype_of(tensor);
  if (!tensor.is_contiguous() || !type)
    throw Error(Exit::failed, Problem{name, "a contiguous fp32 or int64 tensor",
                                      str(tensor.is_contiguous() ? "a contiguous" : "a strided", " tensor of the type ",
                                          c10::toString(tensor.scalar_type())),
                                      "make the tensor contiguous, or convert it to one of these types"});
  tensors_.push_back(tensor.to(at::kCPU));
  views_.push_back({{name, *type, tensor.sizes().vec()}, tensors_.back().const_data_ptr()});
}

void CheckpointTensors::add(const nn::ParameterList& parameters) {
  for (const nn::Parameter& p : parameters.all()) add(p.name(), p.master());
}

void CheckpointTensors::add(const nn::ParameterList& parameters, io::DType type) {
  if (type == io::DType::f32) return add(parameters);
  const auto buffer = std::make_shared<at::Tensor>();
  for (const nn::Parameter& p : parameters.all()) {
    const auto produce = [&p, type, buffer] {
      *buffer = at::Tensor();  // frees the preceding tensor first
      const at::Tensor values = p.master().detach().to(at::kCPU).contiguous();
      if (type == io::DType::f16)
        io::require_half_range(p.name(), values.const_data_ptr<float>(), static_cast<size_t>(values.numel()));
      *buffer = values.to(parameter_scalar_type(type).value());
      return buffer->const_data_ptr();
    };
    add(p.name(), p.sizes().vec(), produce, type);
  }
}

void CheckpointTensors::add(const std::string& name, std::vector<int64_t> shape, std::function<const void*()> produce,
                            io::DType type) {
  views_.push_back({{name, type, std::move(shape)}, nullptr, std::move(produce)});
}

void write_parameters(ByteSink& sink, const nn::ParameterList& parameters, io::Metadata metadata, io::DType type) {
  CheckpointTensors tensors;
  tensors.add(parameters, type);
  io::write_checkpoint(sink, tensors.views(), std::move(metadata));
  sink.close();
}

constexpr const char* kUnmodifiedCheckpoint = "use an unmodified checkpoint";  // advice in errors

namespace {

// Returns type and shape of the tensor `name`. Throws Error(input) if the tensor is missing.
const io::TensorInfo& info_of(const io::Checkpoint& checkpoint, const std::string& name) {
  const io::TensorInfo* info = checkpoint.find(name);
  if (info == nullptr)
    refuse_input(checkpoint.name(), "the tensor " + name, "no tensor of this name", kUnmodifiedCheckpoint);
  return *info;
}

// Throws Error(input) unless the tensor has this shape and type.
void require_layout(const io::Checkpoint& checkpoint, const io::TensorInfo& info, at::IntArrayRef shape,
                    io::DType type) {
  if (info.shape != shape.vec() || info.type != type)
    refuse_input(checkpoint.name() + ": " + info.name, str(io::name_of(type), " ", shape_text(shape)),
                 str(io::name_of(info.type), " ", shape_text(info.shape)), kUnmodifiedCheckpoint);
}

// Returns a parameter in the type in which the checkpoint stores it: fp32, fp16 or bf16. The result is memory of the
// checkpoint, valid without `checkpoint`, or a copy if that memory is not aligned for the type. Throws Error(input) if
// the tensor is missing or does not have this shape and one of these types.
at::Tensor stored_parameter(const io::Checkpoint& checkpoint, const nn::Parameter& p) {
  const io::TensorInfo& info = info_of(checkpoint, p.name());
  const std::optional<at::ScalarType> scalar_type = parameter_scalar_type(info.type);
  require_layout(checkpoint, info, p.sizes(), scalar_type ? info.type : io::DType::f32);
  const void* data = checkpoint.data(p.name());
  const bool is_aligned = reinterpret_cast<uintptr_t>(data) % io::element_bytes(info.type) == 0;
  if (is_aligned && info.num_bytes() > 0)
    return at::from_blob(
        const_cast<void*>(data), p.sizes(), [owner = checkpoint.data_owner()](void*) {}, *scalar_type);
  at::Tensor values = at::empty(p.sizes(), *scalar_type);
  if (values.numel() > 0) std::memcpy(values.mutable_data_ptr(), data, values.nbytes());
  return values;
}

// Returns the elements first, …, first + count - 1 of the tensor `name`, flattened. Throws Error(input) if the tensor
// is missing or does not have this shape and type, or if another program has shortened the file.
at::Tensor stored_elements(const io::Checkpoint& checkpoint, const std::string& name, at::IntArrayRef shape,
                           at::ScalarType scalar_type, int64_t first, int64_t count) {
  at::Tensor elements = at::empty({count}, scalar_type);
  require_layout(checkpoint, info_of(checkpoint, name), shape, dtype_of(elements).value());
  const auto* stored_bytes = static_cast<const char*>(checkpoint.data(name));
  if (count > 0)
    std::memcpy(elements.mutable_data_ptr(), stored_bytes + first * static_cast<int64_t>(elements.element_size()),
                elements.nbytes());
  checkpoint.require_full_size();
  return elements;
}

// Returns a tensor of the checkpoint. Throws Error(input) like stored_elements().
at::Tensor stored_tensor(const io::Checkpoint& checkpoint, const std::string& name, at::IntArrayRef shape,
                         at::ScalarType scalar_type) {
  return stored_elements(checkpoint, name, shape, scalar_type, 0, c10::multiply_integers(shape)).view(shape);
}

}  // namespace

void load_elements(const io::Checkpoint& checkpoint, const std::string& name, at::IntArrayRef shape, int64_t first,
                   at::Tensor& destination) {
  c10::NoGradGuard no_gradient;
  destination.copy_(stored_elements(checkpoint, name, shape, destination.scalar_type(), first, destination.numel()));
}

void load_tensor(const io::Checkpoint& checkpoint, const std::string& name, at::Tensor& destination) {
  c10::NoGradGuard no_gradient;
  destination.copy_(stored_tensor(checkpoint, name, destination.sizes(), destination.scalar_type()));
}

namespace {

// Throws Error(input) if the checkpoint has a tensor that is neither a parameter nor training state.
void refuse_unknown_tensors(const io::Checkpoint& checkpoint, nn::ParameterList& parameters) {
  for (const io::TensorInfo& info : checkpoint.tensors()) {
    if (is_training_state(info.name) || parameters.find(info.name) != nullptr) continue;
    refuse_input(checkpoint.name(), "only tensors of the configured model", "the unknown tensor " + info.name,
                 kUnmodifiedCheckpoint);
  }
}

// Gives all parameters their values for evaluation in bf16 (Masters::absent), and warns about NaN and infinite values.
// Throws like load_parameters().
void load_evaluation_values(const io::Checkpoint& checkpoint, nn::ParameterList& parameters) {
  refuse_unknown_tensors(checkpoint, parameters);
  nn::FiniteCheck finite_check;
  parameters.set_evaluation_values([&](const nn::Parameter& p) {
    at::Tensor values = stored_parameter(checkpoint, p);
    finite_check.add(p.name(), values);
    return values;
  });
  checkpoint.require_full_size();
  finite_check.warn(checkpoint.name());
}

}  // namespace

void load_parameter(const io::Checkpoint& checkpoint, nn::Parameter& parameter) {
  parameter.set_values(stored_parameter(checkpoint, parameter));
  checkpoint.require_full_size();
  checkpoint.release(parameter.name());
}

void load_parameters(const io::Checkpoint& checkpoint, nn::ParameterList& parameters) {
  refuse_unknown_tensors(checkpoint, parameters);
  for (nn::Parameter& p : parameters.all()) load_parameter(checkpoint, p);
  nn::warn_if_not_finite(checkpoint.name(), parameters);
}

void LoadedModel::require_unchanged_file() const {
  if (mapped_file != nullptr) mapped_file->require_unchanged();
  for (const auto& member_file : member_files) member_file->require_unchanged();
}

VocabularySizes vocabulary_sizes_of(const text::Tokenizers& tokenizers) {
  return {tokenizers.target->size(), tokenizers.source_size(), tokenizers.have_same_entries()};
}

ModelConfig config_of(const io::Checkpoint& checkpoint) {
  return read_stored_config(checkpoint.name(), io::kEditedCheckpointAdvice, [&] {
    Config config;
    config.load_text(checkpoint.metadata_entry(io::kConfigKey), checkpoint.name() + ": configuration");
    return ModelConfig::read(config);
  });
}

LoadedModel load_model(const io::Checkpoint& checkpoint, at::Device device, const std::vector<std::string>& overrides,
                       Masters masters) {
  LoadedModel loaded_model;
  loaded_model.name = checkpoint.name();
  loaded_model.tokenizers = text::tokenizers_of(checkpoint);
  const VocabularySizes vocabulary_sizes = vocabulary_sizes_of(loaded_model.tokenizers);
  loaded_model.toml = checkpoint.metadata_entry(io::kConfigKey);
  loaded_model.config = config_of(checkpoint);
  loaded_model.huggingface_type = io::last_origin_text(checkpoint.metadata(), io::kModelTypeKey);
  if (const auto entry = checkpoint.metadata().find(io::kHuggingFaceKey); entry != checkpoint.metadata().end())
    loaded_model.huggingface_companions = entry->second;
  const bool has_masters = masters == Masters::present;
  const nn::ParameterPlacement placement(device, has_masters);
  auto build = [&] { return build_language_model(loaded_model.config, vocabulary_sizes, placement); };
  if (overrides.empty()) {
    loaded_model.model = read_stored_config(checkpoint.name(), io::kEditedCheckpointAdvice, build);
  } else {
    loaded_model.config = apply_overrides(checkpoint.name(), loaded_model.config, overrides, vocabulary_sizes);
    loaded_model.model = build();
  }
  nn::ParameterList& parameters = loaded_model.model->parameters();
  if (has_masters) load_parameters(checkpoint, parameters);
  else load_evaluation_values(checkpoint, parameters);
  if (!has_masters && device.is_cpu()) loaded_model.mapped_file = checkpoint.mapped_file();
  return loaded_model;
}

LoadedModel load_model(const std::string& path, at::Device device, const std::vector<std::string>& overrides,
                       Masters masters) {
  return load_model(io::Checkpoint(path), device, overrides, masters);
}

}  // namespace mh::model
