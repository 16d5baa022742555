// The name by which regularisers find the mixing coefficients α of multi-head mixing (Azov & Landau 2020).
#pragma once

namespace mh::attention {

// Name of the parameter α (ho, hv), without the layer name before it.
constexpr const char* kAlphaName = ".combiner.alpha";

}  // namespace mh::attention
