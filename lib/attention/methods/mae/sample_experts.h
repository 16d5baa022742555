// What block coordinate descent asks of mixtures of attentive experts in a pass.
#pragma once

#include "nn/forward_context.h"

namespace mh::attention {

// An F step: each mixture draws one expert for each unit and leaves its gate as it is, without a gradient.
struct SampleExperts : nn::Request {};

}  // namespace mh::attention
