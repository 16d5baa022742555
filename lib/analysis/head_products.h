// ⟨x_i[t], ∂L/∂x_i[t]⟩ of every head i and position t of a forward pass: what the loss changes by, to first order, when
// head i gives 1 + ξ times as much at t. Summed over t it is dL/dξ.
//
// x is what the head's side gives: attention to the mixer (over keys), head outputs before the combiner, or what the
// combiner gives to the output projection (over dv). For a head as a whole, all the sides that the layer has, summed.
#pragma once

#include "analysis/importance.h"

namespace mh::analysis {

class HeadProducts : public attention::Observer {
 public:
  HeadProducts(model::LanguageModel& model, Side side);

  at::Tensor heads(attention::HeadSide side, const attention::Shape& shape, const at::Tensor& x) override;

  struct Layer {
    const attention::Shape* shape;
    at::Tensor products;  // (B, h, Tq) fp32
  };
  // Of the pass shown last, from its loss; once.
  std::vector<Layer> take(const at::Tensor& loss);

 private:
  std::map<std::pair<Kind, int64_t>, std::vector<attention::HeadSide>> sides_;  // by layer
  // Ones (B, h, Tq) that the heads are multiplied by: their gradient is the inner product.
  std::vector<Layer> ones_;
};

// While it lives, no parameter of the model gets a gradient: only activations do.
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
