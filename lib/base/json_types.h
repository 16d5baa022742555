// The two JSON types, which are instantiated once, in json_types.cpp: each source that reads or writes JSON would take
// a second or two for it. Sources include this file in place of the library's own.
#pragma once

#include <nlohmann/json.hpp>

extern template class nlohmann::basic_json<>;
extern template class nlohmann::basic_json<nlohmann::ordered_map>;
