// The request (nn::Request) by which a training procedure makes a backbone skip layers.
#pragma once

#include <utility>
#include <vector>

#include "nn/forward_context.h"

namespace mh::model {

// Request to skip layers: a skipped layer acts as the identity and leaves its memory of earlier segments unchanged.
struct SkipLayersRequest : nn::Request {
  explicit SkipLayersRequest(std::vector<bool> is_layer_skipped) : is_skipped(std::move(is_layer_skipped)) {}
  std::vector<bool> is_skipped;  // (layers): whether the forward pass skips the layer
};

}  // namespace mh::model
