// A hard-concrete gate for each head (Voita et al. 2019), Z'_i = g_i Z_i. In training each update samples the gates
// once for the whole batch.
#include <cmath>

#include "attention/gated_combiner.h"
#include "attention/methods/hard_concrete/hard_concrete.h"
#include "base/error.h"
#include "base/random.h"
#include "nn/device.h"

namespace mh::attention {

at::Tensor hard_concrete_gates(const HardConcreteDistribution& distribution, const at::Tensor& log_a,
                               const at::Tensor& u) {
  const at::Tensor s =
      u.defined() ? at::sigmoid((at::log(u) - at::log1p(-u) + log_a) / distribution.temperature) : at::sigmoid(log_a);
  return (distribution.low + (distribution.high - distribution.low) * s).clamp(0, 1);
}

at::Tensor hard_concrete_penalty(const HardConcreteDistribution& distribution, const at::Tensor& log_a) {
  return at::sigmoid(log_a - distribution.temperature * std::log(-distribution.low / distribution.high)).sum();
}

void HardConcreteOptions::describe(Fields& f) {
  f.field("temperature", distribution.temperature,
          "temperature of the gate distribution; lower values push gates towards 0 and 1", between(0.001, 10));
  f.field("low", distribution.low,
          "lower end, below 0, of the interval to which gates are stretched before they are clamped to [0, 1]",
          between(-10, -0.0001));
  f.field("high", distribution.high,
          "upper end, above 1, of the interval to which gates are stretched before they are clamped to [0, 1]",
          between(1.0001, 11));
  f.field(
      "start", start,
      "initial value of log a, the learned parameter of a gate; with values above 0 most gates are open at the start",
      between(-20, 20));
}

namespace {

class HardConcreteGates : public GatedCombiner {
 public:
  using Options = HardConcreteOptions;
  HardConcreteGates(const HardConcreteOptions& options, const LayerSpec&) : options_(options) {}
  void add_parameters(nn::ParameterList& parameters, const LayerSpec& layer_spec) override {
    log_a_ = &parameters.add(
        layer_spec.name + kLogAName, {layer_spec.value_heads},
        {nn::Init::constant(options_.start), false, false, {{0, layer_spec.value_heads, HeadSide::value}}});
  }
  bool has_head_gates() const override { return true; }
  bool samples_on_host() const override { return true; }
  at::Tensor head_weights(const Context& c) override {
    return show_gates(c, hard_concrete_gates(options_.distribution, log_a_->value(),
                                             c.forward_context.training ? sample_uniforms(c) : at::Tensor()));
  }
  at::Tensor as_linear_map() const override {
    return at::diag(hard_concrete_gates(options_.distribution, log_a_->master().detach(), {}));
  }

 private:
  static at::Tensor sample_uniforms(const Context& c) {
    const RandomStream stream(c.forward_context.seed, std::string(name_of(c.layer_spec.kind)) + ".hard-concrete");
    std::vector<float> u;
    for (int64_t i = 0; i < c.layer_spec.value_heads; ++i) {
      const float x =
          stream.uniform(c.forward_context.update, static_cast<uint32_t>(c.layer_spec.layer), static_cast<uint64_t>(i));
      u.push_back(std::max(x, 0x1p-25F));  // above 0, so that log(u) is finite
    }
    return nn::to_device(at::tensor(u, at::kFloat), c.query_input.device());
  }

  HardConcreteOptions options_;
  nn::Parameter* log_a_ = nullptr;
};

const Registration<HardConcreteGates> hard_concrete_gates_entry(combiners(), kHardConcreteName,
                                                                "learned gates that can be exactly 0 or 1");

}  // namespace
}  // namespace mh::attention
