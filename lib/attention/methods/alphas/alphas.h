// The name of the parameter of multi-head mixing (Azov & Landau 2020).
#pragma once

namespace mh::attention {

// Parameter name of the matrix α (ho, hv), after the name of the layer.
constexpr const char* kAlpha = ".combiner.alpha";

}  // namespace mh::attention
