// The name of the parameter of multi-head mixing (Azov & Landau 2020).
#pragma once

namespace mh::attention {

constexpr const char* kAlpha = ".combiner.alpha";  // the matrix α (ho, hv), after the name of the layer

}  // namespace mh::attention
