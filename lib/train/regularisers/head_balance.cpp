// The load-balancing loss of a mixture of heads (Jin et al. 2024): for the r routed heads of a layer, with f_e the
// fraction of positions that choose head e and p_e its mean probability,
//   r² mean_e(f_e p_e),   averaged over all positions of the micro-batch, summed over layers.
// Its minimum, k, is reached when all heads are chosen equally often. Choices have no gradient; probabilities do.
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
  void receive(const attention::LayerSpec& layer_spec, attention::RoutingObservation& observation) override {
    if (!looks()) return;
    const auto r = static_cast<double>(observation.probabilities.size(-1));
    add((mean_of_positions(layer_spec.kind, observation.probabilities) *
         mean_of_positions(layer_spec.kind, observation.chosen.detach()))
            .mean() *
        (r * r));
  }
};

const Registration<HeadBalance> head_balance_entry(regularisers(), "head-balance",
                                                   "load balancing of a mixture of heads");

}  // namespace
}  // namespace mh::train
