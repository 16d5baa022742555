// Inner products ⟨x_i[t], ∂L/∂x_i[t]⟩ of every head i and position t in a forward pass: the derivative of the loss L
// with respect to ξ, at ξ = 0, if x_i[t] is scaled by 1 + ξ.
//
// x is the tensor of a head side: the input of the mixer, the head outputs before the combiner, or the input of the
// output projection. Products sum over keys for the input of the mixer, and over dv for the other two. For
// SideSelection::whole the products of all head sides of the layer are summed.
#pragma once

#include "analysis/importance.h"

namespace mh::analysis {

class GradientProductObserver : public attention::Observer {
 public:
  GradientProductObserver(model::LanguageModel& model, SideSelection side);

  at::Tensor intercept_heads(attention::HeadSide side, const attention::LayerSpec& layer_spec,
                             const at::Tensor& x) override;

  struct Layer {
    const attention::LayerSpec* layer_spec;
    at::Tensor products;  // (B, heads of the side, Tq) fp32
  };
  // Returns the products of the last observed forward pass, whose loss is `loss`, and clears them. Must be called once
  // per forward pass.
  std::vector<Layer> collect(const at::Tensor& loss);

 private:
  std::map<std::pair<AttentionKind, int64_t>, std::vector<attention::HeadSide>> sides_;  // by kind and layer
  // Until collect(), Layer::products holds factors equal to 1, (B, heads of the side, Tq), that multiply the tensors of
  // the heads; the gradients of these factors are the inner products.
  std::vector<Layer> layers_;
};

// Disables the gradients of all parameters until the destructor runs, so that backward passes compute only the
// gradients of activations.
class ParameterGradGuard {
 public:
  explicit ParameterGradGuard(nn::ParameterList& parameters);
  ~ParameterGradGuard();
  ParameterGradGuard(const ParameterGradGuard&) = delete;
  ParameterGradGuard& operator=(const ParameterGradGuard&) = delete;

 private:
  std::vector<nn::Parameter*> parameters_;
};

}  // namespace mh::analysis
