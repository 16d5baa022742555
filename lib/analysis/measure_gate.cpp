// The measure "gate": the mean of |w|, with w the weight by which the combiner multiplies a head's output (gates, fixed
// weights, or the total weight in a mixture of experts or of heads). The mean covers real positions, or rows if all
// positions of a row have the same weight.
#include <c10/core/GradMode.h>

#include "analysis/importance.h"
#include "attention/weighing.h"

namespace mh::analysis {
namespace {

class Gate : public Measure, public attention::Subscriber<attention::WeightObservation> {
 public:
  using Measure::Measure;
  std::string none_because(const attention::AttentionLayer& layer) const override {
    if (side() == Side::score || side() == Side::output) return "what weighs heads weighs value heads";
    return layer.weighs() ? "" : "its combiner weighs no heads";
  }
  void receive(const attention::Shape& shape, attention::WeightObservation& shown) override {
    c10::NoGradGuard no_gradient;
    const at::Tensor w = shown.weights.to(at::kDouble).abs();
    if (w.dim() == 1) return add(shape, w, 1);
    for (int64_t b = 0; b < w.size(0); ++b) {
      const int64_t real = real_queries(shape.kind, b, w.dim() == 2 ? 1 : w.size(1));
      if (w.dim() == 3) add(shape, w[b].narrow(0, 0, real).sum(0), static_cast<double>(real));
      else if (real > 0) add(shape, w[b], 1);
    }
  }
};

const Registered<Gate> gate_entry(importances(), "gate", "mean of what the head's output is weighed by");

}  // namespace
}  // namespace mh::analysis
