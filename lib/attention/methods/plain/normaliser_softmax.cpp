// The default normaliser: P = softmax of the logits over the keys that the mask allows and the sink.
#include "attention/masked_softmax.h"
#include "attention/stage.h"

namespace mh::attention {
namespace {

class Softmax : public Normaliser {
 public:
  at::Tensor normalise(const at::Tensor& logits, const at::Tensor& attention_mask, const at::Tensor& sinks) override {
    return masked_softmax_in_place(logits, attention_mask, sinks);
  }
  std::string why_not_fused() const override { return ""; }
  bool is_per_query() const override { return true; }
};

const Registration<Softmax> softmax_entry(normalisers(), "softmax", "softmax of the logits");

}  // namespace
}  // namespace mh::attention
