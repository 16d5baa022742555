// Inner products ⟨x_i[t], ∂L/∂x_i[t]⟩ of every head i and position t in a forward pass: the derivative of the loss L
// with respect to ξ if x_i[t] is scaled by 1 + ξ.
//
// x is the tensor of a side: the input of the mixer (product over keys), the head outputs before the combiner, or the
// input of the output projection (products over dv). For whole heads the products of all sides of the layer are summed.
#pragma once

#include "analysis/importance.h"

namespace mh::analysis {

class HeadProducts : public attention::Observer {
 public:
  HeadProducts(model::LanguageModel& model, Side side);

  at::Tensor heads(attention::HeadSide side, const attention::LayerSpec& layer_spec, const at::Tensor& x) override;

  struct Layer {
    const attention::LayerSpec* layer_spec;
    at::Tensor products;  // (B, h, Tq) fp32
  };
  // Returns the products of the last observed pass, given its loss. Call it once per pass: it clears them.
  std::vector<Layer> take(const at::Tensor& loss);

 private:
  std::map<std::pair<AttentionKind, int64_t>, std::vector<attention::HeadSide>> sides_;  // by layer
  // Factors of the heads, all 1, (B, h, Tq); their gradients are the inner products.
  std::vector<Layer> layers_;
};

// Turns off the gradients of all parameters until it is destroyed, so that backward passes compute only those of
// activations.
class WithoutParameterGradients {
 public:
  explicit WithoutParameterGradients(nn::ParameterList& parameters);
  ~WithoutParameterGradients();
  WithoutParameterGradients(const WithoutParameterGradients&) = delete;
  WithoutParameterGradients& operator=(const WithoutParameterGradients&) = delete;

 private:
  std::vector<nn::Parameter*> trained_;
};

}  // namespace mh::analysis
