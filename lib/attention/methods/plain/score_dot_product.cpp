// The default score: A = Q Kᵀ / √dk (Vaswani et al. 2017, equation 1).
#include <cmath>

#include "attention/causal_product.h"
#include "attention/stage.h"

namespace mh::attention {
namespace {

class DotProduct : public Score {
 public:
  void score(Context& c) override {
    const double scale = 1 / std::sqrt(static_cast<double>(c.layer_spec.key_size));
    c.logits = product_with_keys(c.q * scale, c.k, c.mask.causal_offset());
  }
  std::string why_not_fused() const override { return ""; }
  bool is_per_query() const override { return true; }
};

const Registration<DotProduct> dot_product_entry(scores(), "dot-product", "scaled dot product of queries and keys");

}  // namespace
}  // namespace mh::attention
