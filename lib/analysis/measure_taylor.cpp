// The measure "taylor" (Michel et al. 2019): I_i = mean over positions t of |⟨Z_i[t], ∂L/∂Z_i[t]⟩|, with Z the head
// outputs and L the loss summed over the row that contains t, so that I_i does not depend on batching. The mean leaves
// out padding and includes context positions. Gradients do not flow into a memory. gradient_products.h defines the
// products for the other head sides.
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>

#include "analysis/gradient_products.h"

namespace mh::analysis {

ParameterGradGuard::ParameterGradGuard(nn::ParameterList& parameters) {
  for (nn::Parameter& p : parameters.all())
    if (p.gradient_leaf().requires_grad()) {
      parameters_.push_back(&p);
      p.set_trained(false);
    }
}

ParameterGradGuard::~ParameterGradGuard() {
  for (nn::Parameter* p : parameters_) p->set_trained(true);
}

GradientProductObserver::GradientProductObserver(model::LanguageModel& model, SideSelection side) {
  for (const auto* layer : model.attention_layers())
    sides_[{layer->layer_spec().kind, layer->layer_spec().layer}] = sides_in(*layer, side);
}

at::Tensor GradientProductObserver::intercept_heads(attention::HeadSide side, const attention::LayerSpec& layer_spec,
                                                    const at::Tensor& x) {
  const auto& sides = sides_.at({layer_spec.kind, layer_spec.layer});
  if (std::find(sides.begin(), sides.end(), side) == sides.end()) return x;
  // For each head and query, one factor, equal to 1, multiplies the tensors x of all selected head sides of the layer.
  // The gradient of the factor is ⟨x, ∂L/∂x⟩, summed over these head sides.
  if (layers_.empty() || layers_.back().layer_spec != &layer_spec)
    layers_.push_back(
        {&layer_spec,
         at::ones({x.size(0), x.size(1), x.size(2)}, x.options().dtype(at::kFloat)).set_requires_grad(true)});
  return x * layers_.back().products.unsqueeze(-1).to(x.scalar_type());
}

std::vector<GradientProductObserver::Layer> GradientProductObserver::collect(const at::Tensor& loss) {
  std::vector<at::Tensor> factors;
  for (const Layer& layer : layers_) factors.push_back(layer.products);
  std::vector<Layer> result;
  std::swap(result, layers_);
  if (factors.empty()) return result;
  const auto gradients = torch::autograd::grad({loss}, factors, {}, false, false, true);
  for (size_t i = 0; i < result.size(); ++i)
    result[i].products = gradients[i].defined() ? gradients[i] : at::zeros_like(factors[i]);
  return result;
}

namespace {

// Averages the absolute values of the products over positions.
class ProductMeans : public MeasureObserver {
 public:
  using MeasureObserver::MeasureObserver;
  void add_layer(const GradientProductObserver::Layer& layer) {
    const at::Tensor magnitudes = layer.products.to(at::kDouble).abs();  // (B, heads, Tq)
    for (int64_t b = 0; b < magnitudes.size(0); ++b) {
      const int64_t num_valid = num_valid_queries(layer.layer_spec->kind, b, magnitudes.size(2));
      add(*layer.layer_spec, magnitudes[b].narrow(1, 0, num_valid).sum(1), static_cast<double>(num_valid));
    }
  }
};

// Observes the products, and passes the lengths of the batch rows to `means`, which averages the products.
struct ProductObserver : GradientProductObserver {
  ProductMeans means;
  ProductObserver(model::LanguageModel& model, SideSelection side)
      : GradientProductObserver(model, side), means(side) {}
  void begin_batch(const attention::Lengths& lengths) override { means.begin_batch(lengths); }
};

class Taylor : public ImportanceMeasure {
 public:
  std::map<AttentionKind, LayerScores> compute_scores(const AnalysisInput& input) const override {
    const ParameterGradGuard parameter_grad_guard(input.model.parameters());
    const c10::AutoGradMode grad_mode(true);
    ProductObserver products(input.model, input.side);
    data::BatchVisitor visitor;
    visitor.observer = &products;
    share_contributions(visitor, products.means, input.group, [&](const data::ForwardedBatch& pass) {
      const nn::SlicedLoss loss = input.model.loss(pass.hidden, {pass.batch.targets}, 0);
      for (const auto& layer : products.collect(loss.smoothed)) products.means.add_layer(layer);
    });
    visitor.on_progress = input.progress;
    data::for_each_batch(input.model, input.corpus, input.scoring_options, visitor);
    return products.means.mean_scores();
  }
};

const Registration<Taylor> taylor_entry(
    importance_measures(), "taylor",
    "Mean over positions of |<Z, dL/dZ>|, where Z is the output of the head and L the summed loss (Michel et al. "
    "2019). In layers that mix heads, the same products of the input of the mixer and of the output of the combiner "
    "are added before the absolute value.");

}  // namespace
}  // namespace mh::analysis
