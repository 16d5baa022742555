// Sigsoftmax (Kanai et al. 2018; in attention: Zhang et al. 2022): P ∝ exp(A) σ(A) = softmax(2A - softplus(A)). Unlike
// softmax, sigsoftmax is not invariant to a constant that is added to the logits of a row.
#include "attention/masked_softmax.h"
#include "attention/stage.h"

namespace mh::attention {
namespace {

class Sigsoftmax : public Normaliser {
 public:
  at::Tensor normalise(const at::Tensor& logits, const at::Tensor& attention_mask) override {
    return masked_sigmoid_softmax(logits, attention_mask);
  }
  std::string why_not_fused() const override { return ""; }
  kernels::Normaliser kernel_normaliser() const override { return kernels::Normaliser::sigsoftmax; }
  const char* kernel_feature() const override { return "Sigsoftmax"; }
  bool is_per_query() const override { return true; }
};

const Registration<Sigsoftmax> sigsoftmax_entry(normalisers(), "sigsoftmax",
                                                "normalised product of exponential and sigmoid of the logits");

}  // namespace
}  // namespace mh::attention
