// Fixed weights of head outputs, Z'_i = w_i Z_i; a weight of 0 removes its head (Michel et al. 2019).
#include "attention/gated_combiner.h"
#include "base/error.h"
#include "base/text.h"

namespace mh::attention {
namespace {

struct HeadWeightsOptions : OptionsOf<HeadWeightsOptions> {
  std::vector<double> weights;
  void describe(Fields& f) override {
    f.field("weights", weights, "constant, untrained factors of the head outputs, one for each head; empty: all 1");
  }
};

class HeadWeights : public GatedCombiner {
 public:
  using Options = HeadWeightsOptions;
  HeadWeights(const HeadWeightsOptions& options, const LayerSpec& layer_spec)
      : options_(options), weights_(options.weights.begin(), options.weights.end()) {
    if (weights_.empty()) weights_.assign(static_cast<size_t>(layer_spec.value_heads), 1.0F);
    if (static_cast<int64_t>(weights_.size()) != layer_spec.value_heads)
      refuse_usage(layer_spec.name + ", attention.head-weights.weights",
                   str("one weight for each of ", count_of(layer_spec.value_heads, "head")),
                   count_of(weights_.size(), "weight"),
                   str("if layers have different numbers of heads, set weights for each layer: attention.",
                       name_of(layer_spec.kind), ".", layer_spec.layer, ".head-weights.weights"));
  }
  std::shared_ptr<StageOptions> options_after_pruning(const RemainingHeads& remaining_heads,
                                                      const LayerSpec&) const override {
    if (options_.weights.empty()) return nullptr;
    auto new_options = std::make_shared<HeadWeightsOptions>();
    for (const int64_t head : remaining_heads.value)
      new_options->weights.push_back(options_.weights[static_cast<size_t>(head)]);
    return new_options;
  }
  bool has_head_gates() const override { return true; }
  at::Tensor head_weights(const Context& c) override {
    device_weights_ =
        (device_weights_.defined() ? device_weights_ : at::tensor(weights_, at::kFloat)).to(c.query_input.device());
    return show_gates(c, device_weights_);
  }
  at::Tensor as_linear_map() const override { return at::diag(at::tensor(weights_, at::kFloat)); }

 private:
  HeadWeightsOptions options_;
  std::vector<float> weights_;
  at::Tensor device_weights_;  // (hv): weights_ on the device of the last forward pass
};

const Registration<HeadWeights> head_weights_entry(combiners(), "head-weights",
                                                   "constant factors of the head outputs, which are not trained");

}  // namespace
}  // namespace mh::attention
