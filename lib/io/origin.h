// The origin of a checkpoint: the steps by which mh-convert made the file, a JSON array in the metadata (kOriginKey).
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "io/checkpoint.h"

namespace mh::io {

// Appends `step` to the origin in the metadata of a checkpoint. `file`: name of the checkpoint for messages. Throws
// Error(input) if the present origin is not a JSON array.
void add_origin(Metadata& metadata, const std::string& file, const nlohmann::ordered_json& step);

}  // namespace mh::io
