// The default pairing: query head i reads key/value head i.
#include "attention/stage.h"

namespace mh::attention {
namespace {

class OwnPairing : public Pairing {
 public:
  void pair(Context&) override {}
  std::string why_not_fused() const override { return ""; }
  bool is_per_query() const override { return true; }
};

const Registration<OwnPairing> own_pairing_entry(pairings(), "own",
                                                 "each query head reads the key/value head of the same index");

}  // namespace
}  // namespace mh::attention
