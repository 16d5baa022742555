#include "model/load.h"

#include <c10/core/GradMode.h>

#include <cstring>

#include "base/error.h"
#include "base/text.h"

namespace mh::model {

namespace {

std::string shape_text(at::IntArrayRef shape) {
  std::vector<std::string> sides;
  for (int64_t side : shape) sides.push_back(std::to_string(side));
  return "(" + join(sides, ", ") + ")";
}

}  // namespace

void Views::add(const std::string& name, const at::Tensor& tensor) {
  if (!tensor.is_contiguous() || tensor.scalar_type() != at::kFloat)
    throw Error(Exit::failed, name + " is not a contiguous fp32 tensor");
  held_.push_back(tensor.to(at::kCPU));
  views_.push_back({{name, io::DType::f32, tensor.sizes().vec()}, held_.back().const_data_ptr()});
}

void Views::add(const ParameterList& parameters) {
  for (const Parameter& p : parameters.all()) add(p.name(), p.master());
}

void load_tensor(const io::Checkpoint& checkpoint, const std::string& name, at::Tensor& into) {
  const io::TensorInfo* info = checkpoint.find(name);
  if (info == nullptr)
    throw Error(Exit::input, Problem{checkpoint.name(), "the tensor " + name, "none of this name",
                                     "the file belongs to another model"});
  if (info->shape != into.sizes().vec() || info->type != io::DType::f32)
    throw Error(Exit::input, Problem{checkpoint.name() + ": " + name, "F32 " + shape_text(into.sizes()),
                                     std::string(io::name_of(info->type)) + " " + shape_text(info->shape),
                                     "the file belongs to another model"});
  c10::NoGradGuard no_gradient;
  at::Tensor read = at::empty(into.sizes(), at::kFloat);
  const void* data = checkpoint.data(name);
  if (read.numel() > 0) std::memcpy(read.mutable_data_ptr(), data, info->bytes());
  into.copy_(read);
}

void load_parameters(const io::Checkpoint& checkpoint, ParameterList& parameters) {
  std::vector<std::string> known;
  for (const Parameter& p : parameters.all()) known.push_back(p.name());
  for (const io::TensorInfo& info : checkpoint.tensors()) {
    if (info.name.rfind(kStatePrefix, 0) == 0 || parameters.find(info.name) != nullptr) continue;
    throw Error(Exit::input, Problem{checkpoint.name(), "tensors of this model only", "the unknown tensor " + info.name,
                                     did_you_mean(info.name, known)});
  }
  for (Parameter& p : parameters.all()) load_tensor(checkpoint, p.name(), p.master());
  parameters.refresh_copies();
}

LoadedModel load_model(const std::string& path, at::Device device) {
  io::Checkpoint checkpoint(path);
  LoadedModel loaded;
  loaded.name = checkpoint.name();
  const std::string& format = checkpoint.entry(io::kFormatKey);
  if (format != "1")
    throw Error(Exit::input, Problem{checkpoint.name(), "a checkpoint of format 1", "format " + format,
                                     "use a newer version of multihead"});
  loaded.toml = checkpoint.entry(io::kConfigKey);
  std::string tokenizer;
  try {
    tokenizer = io::from_base64(checkpoint.entry(io::kTokenizerKey));
  } catch (const std::invalid_argument&) {
    throw Error(Exit::input, Problem{checkpoint.name() + ": " + io::kTokenizerKey, "base64", "something else", ""});
  }
  loaded.tokenizer = io::parse_tokenizer(tokenizer, checkpoint.name() + ": tokenizer");
  const std::string& fingerprint = checkpoint.entry(io::kFingerprintKey);
  if (fingerprint != loaded.tokenizer->fingerprint())
    throw Error(Exit::input, Problem{checkpoint.name() + ": " + io::kFingerprintKey,
                                     "the fingerprint of its tokenizer, " + loaded.tokenizer->fingerprint(),
                                     fingerprint, "the entries of two checkpoints are mixed; take a whole one"});
  try {
    Config config;
    config.load_text(loaded.toml, checkpoint.name() + ": configuration");
    loaded.config = ModelConfig::read(config);
    loaded.model = build_language_model(loaded.config, loaded.tokenizer->size(), device);
  } catch (const Error& error) {
    // A wrong value here is the file's fault, not that of the command line.
    if (error.exit() == Exit::usage) throw Error(Exit::input, error.what());
    throw;
  }
  load_parameters(checkpoint, loaded.model->parameters());
  return loaded;
}

}  // namespace mh::model
