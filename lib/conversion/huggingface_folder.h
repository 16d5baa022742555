// Reads and writes the model folders of Hugging Face.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "io/checkpoint.h"
#include "model/load.h"

namespace mh::conversion {

struct ReadOptions {
  uint64_t seed = 1;  // seed of the initial values of parameters that the folder lacks
  // Whether the embedding may have rows past the end of the vocabulary; false: such rows are an error.
  bool accepts_padding_rows = false;
};

class FolderReader;

// A folder with config.json, the vocabulary files, and the tensors in one or several model.safetensors or
// pytorch_model.bin files (io::open_model_files), whose parameters are read one at a time.
class Folder {
 public:
  // Reads config.json, the vocabulary and the headers of the tensors. Logs ignored tensors, the components that are
  // initialised from the seed, and ignored keys of config.json except those without effect on the model. Throws
  // Error(input) that names the setting if multihead does not support its value, and the tensor if it is unknown,
  // missing or of an unexpected shape.
  Folder(const std::string& folder, const ReadOptions& options);
  ~Folder();
  // Returns the model of the folder, whose parameters are on the device "meta", without values. The configuration has
  // the sections [model] and [attention].
  const model::LoadedModel& model() const;
  // Returns model_type of config.json.
  std::string model_type() const;
  // Returns the parts of the folder for a conversion back (huggingface::read_companions()); "": none.
  const std::string& companions() const;
  // Writes a checkpoint with the parameters, as tensors of the type `dtype` (F32, F16 or BF16), and `metadata` to
  // `sink`, and closes the sink. Holds one parameter in memory at a time: 4 bytes for each of its elements, and mapped
  // bytes of its tensor in the folder, all of them if the tensor is transposed. Warns about NaN and infinite values.
  // Throws Error(input) for finite numbers past the range of F16.
  void write_checkpoint(ByteSink& sink, io::Metadata metadata, io::DType dtype = io::DType::f32) const;

 private:
  friend model::LoadedModel read_folder(const std::string& folder, const ReadOptions& options);
  std::unique_ptr<FolderReader> reader_;
};

// Reads a folder as the constructor of Folder does, and all parameters. Warns about NaN and infinite values.
model::LoadedModel read_folder(const std::string& folder, const ReadOptions& options);

struct WriteOptions {
  // Architecture of the folder, as model_type of config.json; "": the first architecture in alphabetical order that has
  // all settings of the model.
  std::string model_type = {};
  io::DType dtype = io::DType::f32;  // format of the tensors: F32, F16 or BF16
  std::string companions = {};       // Folder::companions() of the folder from which the model comes; "": none
};
// Returns the name of a tensor format in config.json and in options: "float32", "float16" or "bfloat16".
const char* dtype_name(io::DType dtype);

// Writes the model to a new folder in the format of transformers; if writing fails, no folder remains. Holds one tensor
// of the folder in memory at a time, besides the model. Throws Error(input) that names the settings if transformers
// does not support the model, and that names the tensor for numbers past the range of F16; Error(usage) if the folder
// exists.
void write_folder(const model::LoadedModel& model, const std::string& folder, const WriteOptions& options = {});

}  // namespace mh::conversion
