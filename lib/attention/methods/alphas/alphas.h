// The name of the parameter of multi-head mixing (Azov & Landau 2020).
#pragma once

namespace mh::attention {

// Suffix, after the name of the layer, of the name of the matrix α (ho, hv).
constexpr const char* kAlpha = ".combiner.alpha";

}  // namespace mh::attention
