// The request (nn::Request) by which block coordinate descent makes mixtures of attentive experts sample an expert.
#pragma once

#include "nn/forward_context.h"

namespace mh::attention {

// Request for an F pass (combiner_mae.cpp): each mixture samples one expert for each unit (batch row or position), and
// gates are frozen and receive no gradient.
struct SampleExpertsRequest : nn::Request {};

}  // namespace mh::attention
