// Reads and writes the model folders of Hugging Face.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "model/load.h"

namespace mh::conversion {

struct ReadOptions {
  uint64_t seed = 1;  // seed of the initial values of parameters that the folder lacks
  // Whether embedding rows past the end of the vocabulary are kept; false: such rows are an error.
  bool keep_padded_rows = false;
};

// Reads a folder with config.json, the vocabulary files, and the tensors in one or several model.safetensors or
// pytorch_model.bin files (io::open_model_files). The configuration of the returned model has the sections [model] and
// [attention]. Logs ignored tensors, the components that are initialised from the seed, and ignored keys of config.json
// except those without effect on the model. Throws Error(input) that names the setting if multihead does not support
// its value, and the tensor if it is unknown, missing or of an unexpected shape.
model::LoadedModel read_folder(const std::string& folder, const ReadOptions& options);

// Writes the model to a new folder in the format of transformers; if writing fails, no folder remains. Throws
// Error(input) that names the settings if transformers does not support the model; Error(usage) if the folder exists.
void write_folder(const model::LoadedModel& model, const std::string& folder);

}  // namespace mh::conversion
