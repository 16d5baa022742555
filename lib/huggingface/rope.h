// Rotary positions (RoPE) in config.json, in both spellings: transformers 4 has rope_theta, rope_scaling and, for some
// architectures, partial_rotary_factor; transformers 5 has one object rope_parameters instead. The settings are those
// of the transform "rotary", by their keys without "attention.": rotary.base, rotary.scaling and so on.
#pragma once

#include <cstdint>
#include <optional>

#include "huggingface/architecture.h"

namespace mh::huggingface {

// How an architecture spells its rotary positions, and its defaults.
struct RopeFormat {
  double default_base = 10000;
  const char* base_key = "rope_theta";
  // Key of the fraction of a head's elements that rotate; null: all elements rotate.
  const char* rotary_fraction_key = nullptr;
  double default_rotary_fraction = 1;
  // Default of original_max_position_embeddings; 0: the value in rope_parameters, or else max_position_embeddings.
  int64_t default_original_length = 0;
  // Whether the only scaling is longrope, for which older files have the names su and yarn.
  bool has_only_longrope = false;
  // Whether rope_scaling of transformers 4 may have no other keys than `type` and the numbers of the scaling, as in
  // Phi-3 and OLMo-2.
  bool has_plain_scaling = false;
};

// Values of config.json on which rotary positions depend.
struct RopeSizes {
  int64_t head_size = 0;
  int64_t max_positions = 0;  // max_position_embeddings
};
// Returns the sizes of a model with these settings.
RopeSizes rope_sizes(const Settings& settings);

// Reads the rotary positions of config.json. Throws Error(input) for an unknown kind of scaling or key, a missing or
// invalid number, and two spellings that differ.
Settings read_rope(const JsonConfig& config, const RopeFormat& format, const RopeSizes& sizes);
// Reads the rotary positions that `parameters`, an object such as rope_parameters, states; without an object, plain
// rotary positions. `base`: base if the object has no rope_theta. The top-level original_max_position_embeddings of
// `config` takes precedence.
Settings read_rope(const JsonConfig& config, const std::optional<JsonConfig>& parameters, const RopeFormat& format,
                   double base, const RopeSizes& sizes);

// Types of layers in config.json, without and with a window.
constexpr const char* kFullAttention = "full_attention";
constexpr const char* kSlidingAttention = "sliding_attention";

// How an architecture spells rotary positions that differ between layers without and with a window: transformers 4 has
// two bases, transformers 5 an object rope_parameters for each type of layers.
struct RopeOfTypesFormat {
  RopeFormat full;  // of layers without a window
  // Key of the base of layers with a window; the value null means the base of layers without a window.
  const char* sliding_base_key;
  double default_sliding_base;
  bool scales_sliding;  // whether rope_scaling of transformers 4 scales layers with a window too
};
// The rotary positions of both types of layers.
struct RopeOfTypes {
  Settings full, sliding;
};
// Reads the rotary positions of both types of layers, with the errors of read_rope().
RopeOfTypes read_rope_of_types(const JsonConfig& config, const RopeOfTypesFormat& format, const RopeSizes& sizes);
// Adds the rotary positions of both types of layers to config.json in both spellings.
void write_rope_of_types(const RopeOfTypes& rope, const RopeOfTypesFormat& format, const RopeSizes& sizes,
                         Json& config);

// Adds the rotary positions of `layer`, the settings of an attention layer without "attention.", to config.json in both
// spellings.
void write_rope(const Settings& layer, const RopeFormat& format, const RopeSizes& sizes, Json& config);
// Returns the object rope_parameters for the settings of an attention layer.
Json rope_parameters(const Settings& layer, const RopeFormat& format, const RopeSizes& sizes);
// Returns the object rope_scaling for the settings of an attention layer; null without scaling.
Json rope_scaling(const Settings& layer, const RopeFormat& format);

}  // namespace mh::huggingface
