// The kind, sizes and name of an attention layer, and the heads that pruning keeps.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "attention/lengths.h"
#include "nn/parameter.h"

namespace mh::attention {

using nn::HeadSide;

// The kind, index, sizes and name of an attention layer; fixed when the model is built.
struct LayerSpec {
  AttentionKind kind = AttentionKind::decoder_self;
  int64_t layer = 0;         // index of the layer in its encoder or decoder, from 0
  int64_t width = 0;         // d, width of the model
  int64_t heads = 0;         // h, number of score heads; 0: layer without heads
  int64_t value_heads = 0;   // hv, number of value heads
  int64_t output_heads = 0;  // ho, number of output heads
  int64_t key_size = 0;      // dk, size of a query or key of one head
  int64_t value_size = 0;    // dv, size of a value of one head
  std::string name;          // prefix of parameter names, such as "decoder.layers.3.self"

  int64_t num_heads_of(HeadSide side) const {
    return side == HeadSide::score ? heads : side == HeadSide::value ? value_heads : output_heads;
  }
};

// Indices of the heads that pruning keeps, for each side, ascending.
struct KeptHeads {
  std::vector<int64_t> score, value, output;
  const std::vector<int64_t>& heads_of(HeadSide side) const {
    return side == HeadSide::score ? score : side == HeadSide::value ? value : output;
  }
};

}  // namespace mh::attention
