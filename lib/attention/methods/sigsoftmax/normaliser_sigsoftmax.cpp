// The normaliser "sigsoftmax" (sigsoftmax.h): the masked softmax of transformed logits.
#include "attention/methods/sigsoftmax/sigsoftmax.h"
#include "attention/softmax_function.h"
#include "attention/stage.h"

namespace mh::attention {
namespace {

// exp(a) σ(a) = exp(f(a)) with f(a) = a + log σ(a) = 2a - softplus(a)
struct LogOfExpTimesSigmoid {
  static constexpr kernels::SoftmaxKind kRowKernel = kernels::SoftmaxKind::sigsoftmax;
  static constexpr bool kIsIdentity = false;
  static at::Tensor apply(const at::Tensor& a) { return a + at::log_sigmoid(a); }
  static at::Tensor derivative(const at::Tensor& a) { return 1 + at::sigmoid(-a); }
};

class Sigsoftmax : public Normaliser {
 public:
  at::Tensor normalise(const at::Tensor& logits, const at::Tensor& attention_mask, const at::Tensor& sinks) override {
    return masked_sigmoid_softmax(logits, attention_mask, sinks);
  }
  std::string why_not_fused() const override { return ""; }
  kernels::Normaliser kernel_normaliser() const override { return kernels::Normaliser::sigsoftmax; }
  const char* kernel_feature() const override { return "Sigsoftmax"; }
  bool is_per_query() const override { return true; }
};

const Registration<Sigsoftmax> sigsoftmax_entry(normalisers(), "sigsoftmax",
                                                "normalised product of exponential and sigmoid of the logits");

}  // namespace

at::Tensor masked_sigmoid_softmax(const at::Tensor& logits, const at::Tensor& attention_mask, const at::Tensor& sinks) {
  return masked_softmax_of<LogOfExpTimesSigmoid>(logits, attention_mask, sinks);
}

}  // namespace mh::attention
