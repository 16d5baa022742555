// The JSON types nlohmann::json and nlohmann::ordered_json, instantiated once in json_types.cpp; otherwise every source
// file that uses JSON would take one or two seconds longer to compile. Source files include this header instead of
// <nlohmann/json.hpp>.
#pragma once

#include <nlohmann/json.hpp>

extern template class nlohmann::basic_json<>;
extern template class nlohmann::basic_json<nlohmann::ordered_map>;
