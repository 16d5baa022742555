// The two JSON types, which are instantiated once, in base/json_types.cpp: every source that reads or writes JSON would
// take a second or two for it. A part of the precompiled headers.
#pragma once

#include <nlohmann/json.hpp>

extern template class nlohmann::basic_json<>;
extern template class nlohmann::basic_json<nlohmann::ordered_map>;
