// Original head indices for gates and routers whose size does not change when heads are pruned. Such a gate still
// computes weights for all heads that the layer was built with, and the weights of pruned heads are dropped. A pruned
// layer therefore computes the same as the original layer would if the pruned heads output zeros.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "attention/stage.h"

namespace mh::attention {

// The heads that a gate was built for, and the heads among them that the layer still has.
struct OriginalHeads {
  int64_t count = 0;                     // number of heads that the gate was built for; 0: all heads of the layer
  std::vector<int64_t> remaining_heads;  // original index, from 0, of each remaining head; empty if count is 0
  void describe(Fields& f);

  // Returns a copy in which a count of 0 is replaced by the heads of the layer. Throws Error(usage), naming the section
  // attention.`section`, if `count` and `remaining_heads` do not fit the layer.
  OriginalHeads resolve_for(const LayerSpec& layer_spec, const std::string& section) const;
  // The member functions below require an object that resolve_for() has returned.
  //
  // Returns whether heads of the layer were pruned.
  bool is_pruned() const { return static_cast<int64_t>(remaining_heads.size()) < count; }
  // Returns the original heads of the layer after pruning all value heads but `value_heads`, which are indices into the
  // heads that the layer has before this pruning.
  OriginalHeads select(const std::vector<int64_t>& value_heads) const;
  // Returns the weights (…, hv) of the layer's value heads, selected from weights w (…, count) of the original heads.
  at::Tensor select_remaining_heads(const at::Tensor& w) const;
  // Returns the head axis, at dimension `dim`, of a parameter with a block for each of the `count` original heads.
  // Swapping heads swaps their blocks, but pruning keeps all blocks (nn::HeadAxis::survives_pruning).
  nn::HeadAxis axis(int64_t dim) const;
};

}  // namespace mh::attention
