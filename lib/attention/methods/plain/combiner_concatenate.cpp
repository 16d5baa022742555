// The default combiner: concatenates head outputs.
#include "attention/gated_combiner.h"

namespace mh::attention {
namespace {

class Concatenate : public Combiner {
 public:
  at::Tensor combine(const Context&, const at::Tensor& z) override { return join_heads(z); }
  std::string why_not_fused() const override { return ""; }
  bool is_per_query() const override { return true; }
};

const Registration<Concatenate> concatenate_entry(combiners(), "concatenate", "concatenation of head outputs");

}  // namespace
}  // namespace mh::attention
