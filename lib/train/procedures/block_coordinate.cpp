#include "train/procedures/block_coordinate.h"

namespace mh::train {

std::vector<Pass> BlockCoordinate::passes(int64_t epoch) const {
  if (options_.joint) return {{.sample_experts = false, .gates = true, .others = true}};
  const Pass g{.sample_experts = false, .gates = true, .others = false};
  const Pass f{.sample_experts = true, .gates = false, .others = true};
  const bool both = epoch >= options_.first && (epoch - options_.first) % options_.every == 0;
  return both ? std::vector<Pass>{g, f} : std::vector<Pass>{f};
}

bool BlockCoordinate::is_gate(std::string_view name) { return name.find(".gate.") != std::string_view::npos; }

}  // namespace mh::train
