// A gate or router that outlives heads: it weighs the heads that it was made for, also those that the layer has lost
// since, whose weights are then dropped. So what is left computes what it did while the lost heads gave zeros.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "attention/stage.h"

namespace mh::attention {

struct Outlived {
  int64_t of = 0;             // heads it was made for; 0: the heads of the layer
  std::vector<int64_t> kept;  // the numbers, among these, of the heads that the layer has, in its order
  void describe(Fields& f);

  // With the defaults filled in. Error(usage), about the options `where`, where they do not fit the layer.
  Outlived in(const Shape& shape, const std::string& where) const;
  // The rest is of what in() gave.
  bool lost() const { return static_cast<int64_t>(kept.size()) < of; }
  // The gate or router after all value heads of the layer but these are cut.
  Outlived without(const std::vector<int64_t>& value) const;
  // w (…, of) -> (…, h)
  at::Tensor of_kept(const at::Tensor& w) const;
  // An axis of `of` blocks that go with their heads and outlive them.
  nn::HeadAxis axis(int64_t axis) const;
};

}  // namespace mh::attention
