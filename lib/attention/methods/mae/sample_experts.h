// The request of block coordinate descent to mixtures of attentive experts in a pass.
#pragma once

#include "nn/forward_context.h"

namespace mh::attention {

// An F step: each mixture draws one expert for each unit and leaves its gate unchanged, without a gradient.
struct SampleExperts : nn::Request {};

}  // namespace mh::attention
