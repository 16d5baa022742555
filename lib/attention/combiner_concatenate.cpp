// Head outputs side by side, as the output projection expects them.
#include "attention/stage.h"

namespace mh::attention {
namespace {

class Concatenate : public Combiner {
 public:
  at::Tensor combine(const Context&, const at::Tensor& z) override {
    return z.transpose(1, 2).reshape({z.size(0), z.size(2), z.size(1) * z.size(3)});
  }
  std::string unfused_because() const override { return ""; }
};

const Plain<Combiner, Concatenate> entry(combiners(), "concatenate", "head outputs side by side");

}  // namespace
}  // namespace mh::attention
