// Bookkeeping for gates and routers that survive the pruning of heads. Such a gate still computes weights for all heads
// that the layer was built with, and drops the weights of pruned heads. So a pruned layer computes the same as the full
// layer would if the pruned heads output zeros.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "attention/stage.h"

namespace mh::attention {

// The heads that a gate was built for, and those of them that the layer still has.
struct OriginalHeads {
  int64_t count = 0;          // number of heads that the gate was built for; 0: the heads of the layer
  std::vector<int64_t> kept;  // index, among these heads, of each head that the layer still has
  void describe(Fields& f);

  // Returns a copy with the defaults of the layer filled in. Throws Error(usage), naming the options section `where`,
  // if it does not fit the layer.
  OriginalHeads in(const LayerSpec& layer_spec, const std::string& where) const;
  // The functions below require an object returned by in().
  // Returns whether the layer has lost heads.
  bool has_lost_heads() const { return static_cast<int64_t>(kept.size()) < count; }
  // Returns the bookkeeping after pruning all value heads of the layer but `value`.
  OriginalHeads without(const std::vector<int64_t>& value) const;
  // Selects the weights of the layer's heads: w (…, count) -> (…, h).
  at::Tensor select_kept(const at::Tensor& w) const;
  // Returns the head axis of a parameter with `count` blocks, which move with their heads but survive pruning
  // (nn::HeadAxis::survives_pruning).
  nn::HeadAxis axis(int64_t axis) const;
};

}  // namespace mh::attention
