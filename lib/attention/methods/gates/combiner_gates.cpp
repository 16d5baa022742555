// A learned gate for each head, Z'_i = σ(b_i) Z_i, or for each head and position, Z'_i[t] = σ(w_i · x[t] + b_i) Z_i[t],
// where x is the input of the query projection. At the start w = 0 and all gates are equal.
#include <cmath>

#include "attention/gated_combiner.h"
#include "nn/ops.h"

namespace mh::attention {
namespace {

struct GatesOptions : OptionsOf<GatesOptions> {
  bool input = false;
  double start = 0.5;
  void describe(Fields& f) override {
    f.field("input", input, "compute gates from the layer's input, so that they differ between positions");
    f.field("start", start, "initial value of the gates", between(0.001, 0.999));
  }
};

class Gates : public GatedCombiner {
 public:
  using Options = GatesOptions;
  Gates(const GatesOptions& options, const LayerSpec&) : options_(options) {}
  void add_parameters(nn::ParameterList& parameters, const LayerSpec& layer_spec) override {
    const int64_t h = layer_spec.value_heads;
    const nn::HeadAxis axis{0, h, HeadSide::value};
    if (options_.input)
      weight_ = &parameters.add(layer_spec.name + ".combiner.gate.weight", {h, layer_spec.width},
                                {nn::Init::constant(0), true, false, {axis}});
    bias_ =
        &parameters.add(layer_spec.name + ".combiner.gate.bias", {h},
                        {nn::Init::constant(std::log(options_.start / (1 - options_.start))), false, false, {axis}});
  }
  bool has_head_gates() const override { return true; }
  at::Tensor head_weights(const Context& c) override {
    const at::Tensor& b = bias_->value();
    return show_gates(c, at::sigmoid(weight_ != nullptr ? nn::linear(c.query_input, weight_->value(), b) : b));
  }
  at::Tensor as_linear_map() const override {
    return weight_ == nullptr ? at::diag(at::sigmoid(bias_->master().detach())) : at::Tensor();
  }

 private:
  GatesOptions options_;
  nn::Parameter *weight_ = nullptr, *bias_ = nullptr;
};

const Registration<Gates> gates_entry(combiners(), "gates", "learned sigmoid gate for each head");

}  // namespace
}  // namespace mh::attention
