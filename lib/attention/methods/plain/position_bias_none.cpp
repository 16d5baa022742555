// The default position bias: none.
#include <stdexcept>

#include "attention/stage.h"

namespace mh::attention {
namespace {

class NoPositionBias : public PositionBiasStage {
 public:
  bool has_bias() const override { return false; }
  at::Tensor bias(const Context&, const at::Tensor&) override {
    throw std::logic_error("position bias 'none' has no bias");
  }
  std::string why_not_fused() const override { return ""; }
  bool is_per_query() const override { return true; }
};

const Registration<NoPositionBias> no_position_bias_entry(position_biases(), "none", "no position bias");

}  // namespace
}  // namespace mh::attention
