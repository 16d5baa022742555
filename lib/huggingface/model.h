// Models of ours from folders of Hugging Face, and back.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "huggingface/architecture.h"
#include "model/load.h"

namespace mh::huggingface {

struct ReadOptions {
  uint64_t seed = 1;  // of what the folder lacks
  // Rows of the embedding behind the vocabulary are kept; without it they are refused.
  bool padded = false;
};

// A folder with config.json, the vocabulary's files and model.safetensors or pytorch_model.bin, one or several
// (io::open_model_files). The configuration is that of [model] and [attention]. Says what it leaves out, and what it
// fills from the seed. Error(input) for all that is not known, missing, or of another shape, by its name.
model::LoadedModel read_folder(const std::string& folder, const ReadOptions& options);

// Writes a new folder that transformers reads: whole or not at all. Error(input) where transformers has no such model,
// with the settings that it cannot say; Error(usage) where the folder is there.
void write_folder(const model::LoadedModel& model, const std::string& folder);

}  // namespace mh::huggingface
