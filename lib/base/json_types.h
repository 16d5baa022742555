// The two JSON types, instantiated once in json_types.cpp: otherwise each source that reads or writes JSON would
// compile a second or two longer. Sources include this file instead of <nlohmann/json.hpp>.
#pragma once

#include <nlohmann/json.hpp>

extern template class nlohmann::basic_json<>;
extern template class nlohmann::basic_json<nlohmann::ordered_map>;
