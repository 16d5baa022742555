// The default score: A = Q Kᵀ / √dk (Vaswani et al. 2017, equation 1), or with another factor (attention.scale).
#include "attention/causal_product.h"
#include "attention/stage.h"

namespace mh::attention {
namespace {

class DotProduct : public Score {
 public:
  void score(Context& c) override {
    c.logits = product_with_keys(c.q * c.layer_spec.scale(), c.k, c.mask.causal_offset());
  }
  std::string why_not_fused() const override { return ""; }
  bool is_per_query() const override { return true; }
};

const Registration<DotProduct> dot_product_entry(scores(), "dot-product", "scaled dot product of queries and keys");

}  // namespace
}  // namespace mh::attention
