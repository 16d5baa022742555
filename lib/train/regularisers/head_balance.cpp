// What keeps a mixture of heads (Jin et al. 2024) from choosing the same heads everywhere: for a layer's r heads to
// choose from, with f_e the share of positions that choose head e and p_e its mean probability,
//   r² mean_e(f_e p_e),   a mean over all positions of the micro-batch, added over layers.
// It is least, k, where all are chosen alike. Choices have no gradient; probabilities do.
#include "attention/methods/mixture_of_heads/routing.h"
#include "train/groups.h"
#include "train/regulariser.h"

namespace mh::train {
namespace {

class HeadBalance : public ShownTerm, public attention::Subscriber<attention::RoutingObservation> {
 public:
  HeadBalance() : ShownTerm(0.01) {}
  void start(nn::ParameterList& parameters, const attention::AttentionConfig&) override {
    find_matching(parameters, "*.combiner.router.weight",
                  {"train.regularisers.head-balance", "attention.combiner = \"mixture-of-heads\"", "none", ""});
  }
  void receive(const attention::LayerSpec& layer_spec, attention::RoutingObservation& shown) override {
    if (!looks()) return;
    const auto r = static_cast<double>(shown.probabilities.size(-1));
    add((mean_of_positions(layer_spec.kind, shown.probabilities) *
         mean_of_positions(layer_spec.kind, shown.chosen.detach()))
            .mean() *
        (r * r));
  }
};

const Registration<HeadBalance> head_balance_entry(regularisers(), "head-balance",
                                                   "a mixture of heads that chooses all of them");

}  // namespace
}  // namespace mh::train
