// The origin of a checkpoint: the steps by which mh-convert made the file, a JSON array in the metadata (kOriginKey).
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "io/checkpoint.h"

namespace mh::io {

// Appends `step` to the origin in the metadata of a checkpoint. `file`: name of the checkpoint for messages. Throws
// Error(input) if the present origin is not a JSON array.
void add_origin(Metadata& metadata, const std::string& file, const nlohmann::ordered_json& step);

// Key of a step that read a Hugging Face folder: model_type of its config.json, which a later conversion back prefers.
inline constexpr const char* kModelTypeKey = "model_type";
// Returns the text with the key `key` in the last step of the origin that has such a text; "" if there is none, or if
// the origin is not valid.
std::string last_origin_text(const Metadata& metadata, const std::string& key);

}  // namespace mh::io
