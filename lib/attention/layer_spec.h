// The sizes and the name of one attention layer.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "attention/attention_kind.h"
#include "nn/parameter.h"

namespace mh::attention {

using nn::HeadSide;

// The attention layer that a stage belongs to; fixed when the model is built.
struct LayerSpec {
  AttentionKind kind = AttentionKind::decoder_self;
  int64_t layer = 0;  // from 0
  int64_t width = 0;  // d
  int64_t heads = 0;  // score heads; 0: all heads were pruned
  int64_t value_heads = 0;
  int64_t output_heads = 0;
  int64_t key_size = 0;    // dk
  int64_t value_size = 0;  // dv
  std::string name;        // "decoder.layers.3.self": prefix of the names of its parameters

  int64_t heads_of(HeadSide side) const {
    return side == HeadSide::score ? heads : side == HeadSide::value ? value_heads : output_heads;
  }
};

// The heads that pruning keeps, on each side, ascending.
struct KeptHeads {
  std::vector<int64_t> score, value, output;
  const std::vector<int64_t>& of(HeadSide side) const {
    return side == HeadSide::score ? score : side == HeadSide::value ? value : output;
  }
};

}  // namespace mh::attention
