// A = Q Kᵀ / √dk (Vaswani et al. 2017, equation 1).
#include <cmath>

#include "attention/stage.h"

namespace mh::attention {
namespace {

class DotProduct : public Score {
 public:
  void score(Context& c) override {
    c.logits = at::matmul(c.q * (1 / std::sqrt(static_cast<double>(c.shape.key_size))), c.k.transpose(-1, -2));
  }
  std::string unfused_because() const override { return ""; }
};

const Plain<Score, DotProduct> entry(scores(), "dot-product", "scaled dot product of queries and keys");

}  // namespace
}  // namespace mh::attention
