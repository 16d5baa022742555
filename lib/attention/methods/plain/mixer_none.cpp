// The default mixer: each head uses its own probabilities.
#include "attention/stage.h"

namespace mh::attention {
namespace {

class NoMixing : public Mixer {
 public:
  MixerInput mixer_input() const override { return MixerInput::nothing; }
  at::Tensor mix(const Context&, const at::Tensor& probabilities) override { return probabilities; }
  std::string why_not_fused() const override { return ""; }
  bool is_per_query() const override { return true; }
};

const Registration<NoMixing> no_mixing_entry(mixers(), "none", "no mixing of heads");

}  // namespace
}  // namespace mh::attention
