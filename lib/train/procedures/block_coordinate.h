// Block coordinate descent of a mixture of attentive experts (Peng et al. 2020): gates and everything else are trained
// in turn. A pure policy: it says which passes an update takes, and knows neither models nor optimisers.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/fields.h"

namespace mh::train {

struct BlockCoordinateOptions {
  int64_t every = 5;
  int64_t first = 0;
  bool joint = false;

  void describe(Fields& f) {
    f.field("every", every, "gates are trained in one of so many epochs", at_least(1));
    f.field("first", first, "the first epoch in which they are, from 0", at_least(0));
    f.field("joint", joint, "train gates and all else together, always on the whole mixture");
  }
};

// One forward and backward pass over the batch of an update, and the step of an optimiser after it.
struct Pass {
  bool sample_experts = false;  // as Step::sample_experts: one drawn expert; else the whole mixture
  bool gates = false;           // the step changes parameters of gates
  bool others = false;          // the step changes all the other parameters
  bool operator==(const Pass&) const = default;
};

class BlockCoordinate {
 public:
  explicit BlockCoordinate(const BlockCoordinateOptions& options) : options_(options) {}

  // The passes of every update of an epoch (from 0), in their order.
  //   G pass: the mixture, changes gates;   F pass: drawn experts, changes all else.
  // Epochs first, first + every, …: G, then F. Others: F. Joint: one pass of the mixture that changes everything.
  std::vector<Pass> passes(int64_t epoch) const;

  // Whether a parameter is a gate's: its name is like "*.gate.*".
  static bool is_gate(std::string_view name);

 private:
  BlockCoordinateOptions options_;
};

}  // namespace mh::train
