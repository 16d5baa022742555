// The kind, sizes and name of an attention layer, and the heads that remain after pruning.
#pragma once

#include <cmath>
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
  // hkv, number of key/value heads of grouped-query attention (Ainslie et al. 2023), in which several query heads read
  // the keys and values of one key/value head; 0: keys have h heads, values hv heads, and no head is shared. A grouped
  // layer has equal numbers of score and value heads.
  int64_t kv_heads = 0;
  std::vector<int64_t> kv_head_of = {};  // (h): key/value head that each query head reads; empty if kv_heads is 0
  double logit_scale = 0;                // factor of the products of queries and keys; 0: 1/√dk

  bool is_grouped() const { return kv_heads > 0; }
  int64_t k_heads() const { return is_grouped() ? kv_heads : heads; }        // heads of k
  int64_t v_heads() const { return is_grouped() ? kv_heads : value_heads; }  // heads of v
  double scale() const { return logit_scale > 0 ? logit_scale : 1 / std::sqrt(static_cast<double>(key_size)); }
  int64_t num_heads_of(HeadSide side) const {
    switch (side) {
      case HeadSide::score:
        return heads;
      case HeadSide::value:
        return value_heads;
      case HeadSide::output:
        return output_heads;
      case HeadSide::key_value:
        return kv_heads;
    }
    return 0;
  }
};

// Indices, before pruning, of the heads that remain after pruning, for each side, ascending. `key_value`: in a grouped
// layer, the key/value heads that a remaining query head reads; otherwise empty.
struct RemainingHeads {
  std::vector<int64_t> score, value, output, key_value = {};
  const std::vector<int64_t>& heads_of(HeadSide side) const {
    return side == HeadSide::score    ? score
           : side == HeadSide::value  ? value
           : side == HeadSide::output ? output
                                      : key_value;
  }
};

}  // namespace mh::attention
