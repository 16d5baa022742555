// The measure "gate": the mean of |w|, with w the weight by which a combiner multiplies a head's output (gates, fixed
// weights, or the total weight in a mixture of experts or of heads), or the product of the weights of several
// combiners. The mean is over positions that are not padding, or over batch rows if all positions of a row have the
// same weight.
#include <c10/core/GradMode.h>

#include "analysis/importance.h"
#include "attention/gated_combiner.h"

namespace mh::analysis {
namespace {

class GateMeasure : public MeasureObserver, public attention::Subscriber<attention::HeadWeightObservation> {
 public:
  using MeasureObserver::MeasureObserver;
  std::string why_undefined(const attention::AttentionLayer& layer) const override {
    if (side() == SideSelection::score || side() == SideSelection::output) return "gates apply to value heads only";
    return layer.has_head_gates() ? "" : "the combiner has no head gates";
  }
  const char* why_composed() const override { return nullptr; }
  void receive(const attention::LayerSpec& layer_spec, attention::HeadWeightObservation& observation) override {
    c10::NoGradGuard no_gradient;
    const at::Tensor w = observation.weights.to(at::kDouble).abs();
    if (w.dim() == 1) return add(layer_spec, w, 1);
    for (int64_t b = 0; b < w.size(0); ++b) {
      const int64_t num_valid = num_valid_queries(layer_spec.kind, b, w.dim() == 2 ? 1 : w.size(1));
      if (w.dim() == 3) add(layer_spec, w[b].narrow(0, 0, num_valid).sum(0), static_cast<double>(num_valid));
      else if (num_valid > 0) add(layer_spec, w[b], 1);
    }
  }
};

const Registration<GateMeasure> gate_entry(
    importance_measures(), "gate",
    "Mean absolute factor by which the combiner multiplies the output of the head: its gate, its constant weight "
    "(head-weights), or its weight in a mixture of experts or of heads; in a list of combiners, the product. Refused "
    "if "
    "a layer has no such factors.");

}  // namespace
}  // namespace mh::analysis
