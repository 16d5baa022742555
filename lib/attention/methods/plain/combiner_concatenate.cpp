// The default combiner: concatenates the head outputs.
#include "attention/weighing.h"

namespace mh::attention {
namespace {

class Concatenate : public Combiner {
 public:
  at::Tensor combine(const Context&, const at::Tensor& z) override { return join_heads(z); }
  std::string unfused_because() const override { return ""; }
  bool by_query() const override { return true; }
};

const Registered<Concatenate> concatenate_entry(combiners(), "concatenate", "head outputs side by side");

}  // namespace
}  // namespace mh::attention
