// Reads and writes the model folders of Hugging Face.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "huggingface/architecture.h"
#include "model/load.h"

namespace mh::huggingface {

struct ReadOptions {
  uint64_t seed = 1;  // initial values of parameters that the folder lacks
  // keeps rows of the embedding past the end of the vocabulary; otherwise they are an error
  bool padded = false;
};

// Reads a folder with config.json, the vocabulary files and model.safetensors or pytorch_model.bin, one or several
// (io::open_model_files). The configuration has [model] and [attention]. Logs which tensors it leaves out, and which
// parameters it initialises from the seed. Throws Error(input), with the name, for settings and tensors that are
// unknown, missing or of another shape.
model::LoadedModel read_folder(const std::string& folder, const ReadOptions& options);

// Writes a new folder for transformers: whole or not at all. Throws Error(input), with the settings, if transformers
// has no such model; Error(usage) if the folder exists.
void write_folder(const model::LoadedModel& model, const std::string& folder);

}  // namespace mh::huggingface
