// The request (nn::Request) of block coordinate descent to mixtures of attentive experts.
#pragma once

#include "nn/forward_context.h"

namespace mh::attention {

// Requests an F step: each mixture samples one expert for each unit, and its gate is frozen and gets no gradient.
struct SampleExperts : nn::Request {};

}  // namespace mh::attention
