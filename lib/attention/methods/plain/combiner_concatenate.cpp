// The default combiner: leaves head outputs unchanged. The layer concatenates them.
#include "attention/stage.h"

namespace mh::attention {
namespace {

class Concatenate : public Combiner {
 public:
  std::string why_not_fused() const override { return ""; }
  bool is_per_query() const override { return true; }
};

const Registration<Concatenate> concatenate_entry(combiners(), "concatenate", "concatenation of head outputs");

}  // namespace
}  // namespace mh::attention
