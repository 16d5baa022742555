// Fixed weights of the heads: Z'_i = w_i Z_i. A zero removes its head (Michel et al. 2019).
#include "attention/weighing.h"
#include "base/error.h"

namespace mh::attention {
namespace {

struct HeadWeightsOptions : OptionsOf<HeadWeightsOptions> {
  std::vector<double> weights;
  void describe(Fields& f) override { f.field("weights", weights, "a weight for each head; empty: ones"); }
};

class HeadWeights : public Weighing {
 public:
  using Options = HeadWeightsOptions;
  HeadWeights(const HeadWeightsOptions& options, const Shape& shape)
      : options_(options), weights_(options.weights.begin(), options.weights.end()) {
    if (weights_.empty()) weights_.assign(static_cast<size_t>(shape.value_heads), 1.0F);
    if (static_cast<int64_t>(weights_.size()) != shape.value_heads)
      throw Error(Exit::usage,
                  Problem{shape.name + ", head-weights.weights",
                          str("a weight for each of ", shape.value_heads, " heads"), str(weights_.size(), " weights"),
                          str("give them by kind or by layer where heads differ: attention.", name_of(shape.kind), ".",
                              shape.layer, ".head-weights.weights")});
  }
  std::shared_ptr<StageOptions> keep(const KeptHeads& kept, const Shape&) const override {
    if (options_.weights.empty()) return nullptr;
    auto left = std::make_shared<HeadWeightsOptions>();
    for (const int64_t head : kept.value) left->weights.push_back(options_.weights[static_cast<size_t>(head)]);
    return left;
  }
  bool weighs() const override { return true; }
  at::Tensor weights(const Context& c) override {
    on_device_ = (on_device_.defined() ? on_device_ : at::tensor(weights_, at::kFloat)).to(c.query_input.device());
    return shown_gates(c, on_device_);
  }
  at::Tensor folded() const override { return at::diag(at::tensor(weights_, at::kFloat)); }

 private:
  HeadWeightsOptions options_;
  std::vector<float> weights_;
  at::Tensor on_device_;  // weights_ as a tensor
};

const Registered<HeadWeights> head_weights_entry(combiners(), "head-weights", "fixed weights of the heads");

}  // namespace
}  // namespace mh::attention
