// The default pairing: query head i reads key/value head i.
#include "attention/stage.h"

namespace mh::attention {
namespace {

class Own : public Pairing {
 public:
  void pair(Context&) override {}
  std::string unfused_because() const override { return ""; }
  bool by_query() const override { return true; }
};

const Registered<Own> own_entry(pairings(), "own", "each head reads its own keys and values");

}  // namespace
}  // namespace mh::attention
