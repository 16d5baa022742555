#include "train/derived_metadata.h"

namespace mh::train {

io::Metadata derived_metadata(const io::Checkpoint& source) {
  io::Metadata metadata = source.metadata();
  metadata.erase(io::kTrainingKey);
  return metadata;
}

io::Metadata inherited_metadata(const io::Checkpoint& source) {
  io::Metadata metadata;
  for (const char* key : {io::kOriginKey, io::kHuggingFaceKey})
    if (const auto entry = source.metadata().find(key); entry != source.metadata().end()) metadata.insert(*entry);
  return metadata;
}

void set_model(io::Metadata& metadata, RunConfig run_config, const model::ModelConfig& model_config) {
  run_config.model = model_config;
  metadata[io::kConfigKey] = run_config.toml();
}

}  // namespace mh::train
