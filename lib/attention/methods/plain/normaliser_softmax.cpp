// P = softmax over the keys that may be attended to.
#include "attention/masked_softmax.h"
#include "attention/stage.h"

namespace mh::attention {
namespace {

class Softmax : public Normaliser {
 public:
  at::Tensor normalise(const at::Tensor& logits, const at::Tensor& allowed) override {
    return masked_softmax_in_place(logits, allowed);
  }
  std::string unfused_because() const override { return ""; }
  bool by_query() const override { return true; }
};

const Registered<Softmax> softmax_entry(normalisers(), "softmax", "exponentials that sum to 1");

}  // namespace
}  // namespace mh::attention
