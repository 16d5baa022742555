// The regulariser "head-balance": the load-balancing loss of a mixture of heads (Jin et al. 2024), summed over layers,
//
//   r² mean_e(f_e p_e),
//
// where the mean runs over the r routed heads e of a layer, f_e is the fraction of positions whose router selects head
// e, and p_e is the mean routing probability of head e. f_e and p_e are computed over all positions of a micro-batch
// that are not padding. If each position selects k heads and all heads are selected equally often, the value is k. The
// gradient passes through p_e only.
#include "attention/methods/mixture_of_heads/routing.h"
#include "train/parameter_groups.h"
#include "train/regulariser.h"

namespace mh::train {
namespace {

class HeadBalance : public ObservedTerm, public attention::Subscriber<attention::RoutingObservation> {
 public:
  HeadBalance() : ObservedTerm(0.01, "load-balancing loss of the heads") {}
  void start(nn::ParameterList& parameters, const attention::AttentionConfig& attention) override {
    find_parameters(parameters, str("*", attention::kRouterName),
                    {"train.regularisers.head-balance", "attention.combiner = \"mixture-of-heads\"",
                     attention.combiners_text(), "set attention.combiner, or remove the regulariser"});
  }
  const char* why_composed() const override { return nullptr; }
  void receive(const attention::LayerSpec& layer_spec, attention::RoutingObservation& observation) override {
    if (!is_training_pass()) return;
    const auto r = static_cast<double>(observation.probabilities.size(-1));
    add((mean_over_queries(layer_spec.kind, observation.probabilities) *
         mean_over_queries(layer_spec.kind, observation.chosen_mask.detach()))
            .mean() *
        (r * r));
  }
};

const Registration<HeadBalance> head_balance_entry(regularisers(), "head-balance",
                                                   "load-balancing loss of a mixture of heads");

}  // namespace
}  // namespace mh::train
