// Language models from pieces of configuration, and tokens to feed them.
#pragma once

#include <ATen/ATen.h>

#include <string>

#include "model/model_config.h"

namespace models {

using namespace mh;
using namespace mh::model;
using namespace mh::nn;

// From a whole configuration file, none of whose keys is unknown.
inline ModelConfig configured(const std::string& toml) {
  Config config;
  config.load_text(toml, "test");
  ModelConfig c = ModelConfig::read(config);
  config.check_all_known();
  return c;
}

inline int64_t count(const std::string& toml, int64_t vocabulary) {
  return build_language_model(configured(toml), vocabulary, at::kMeta)->parameters().count();
}

// (rows, length)
inline at::Tensor some_tokens(int64_t rows, int64_t length, int64_t vocabulary, uint64_t seed) {
  at::manual_seed(seed);
  return at::randint(vocabulary, {rows, length}, at::kLong);
}

}  // namespace models
