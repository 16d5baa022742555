// P = softmax over the keys that may be attended to.
#include "attention/stage.h"

namespace mh::attention {
namespace {

class Softmax : public Normaliser {
 public:
  at::Tensor normalise(const at::Tensor& logits, const at::Tensor& allowed) override {
    if (!allowed.defined()) return at::softmax(logits, -1);
    // A row without an allowed key has no distribution; it attends to nothing.
    at::Tensor some = allowed.any(-1, true);
    at::Tensor p = at::softmax(logits.masked_fill(~allowed & some, -INFINITY), -1);
    return p * (allowed & some);
  }
  std::string unfused_because() const override { return ""; }
};

const Plain<Normaliser, Softmax> entry(normalisers(), "softmax", "exponentials that sum to 1");

}  // namespace
}  // namespace mh::attention
