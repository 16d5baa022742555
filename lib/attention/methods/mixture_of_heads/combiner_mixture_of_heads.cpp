// Mixture of heads (Jin et al. 2024): each position has its own head weights, Z'_i[t] = w_i[t] Z_i[t]. The first s
// heads (shared) are always active; of the other r = h - s heads (routed), each position chooses the k most probable.
// With the input x of the query projection, a router R (h, d) and a balance A (2, d):
//   shared head i    w_i = 2 a_1 s softmax(R_shared x)_i
//   routed head i    w_i = 2 a_2 k p_i / Σ_chosen p if it is chosen, otherwise 0;   p = softmax(R_routed x)
//   a = softmax(A x)
// Without shared heads there is no balance, and a chosen head has w_i = k p_i / Σ_chosen p. The regulariser
// `head-balance` is the loss that spreads positions over heads.
#include "attention/gated_combiner.h"
#include "attention/methods/mixture_of_heads/routing.h"
#include "attention/pruned_heads.h"
#include "base/error.h"
#include "nn/ops.h"

namespace mh::attention {
namespace {

struct MixtureOfHeadsOptions : OptionsOf<MixtureOfHeadsOptions> {
  int64_t shared_heads = 2;
  int64_t chosen_heads = 2;
  OriginalHeads original_heads;
  void describe(Fields& f) override {
    f.field("shared_heads", shared_heads,
            "number of shared heads: the first heads of the layer, which are active at every position", at_least(0));
    f.field("chosen_heads", chosen_heads,
            "number of routed heads (the heads that are not shared) that each position chooses", at_least(1));
    original_heads.describe(f);
  }
};

class MixtureOfHeads : public GatedCombiner {
 public:
  using Options = MixtureOfHeadsOptions;
  MixtureOfHeads(const MixtureOfHeadsOptions& options, const LayerSpec& layer_spec)
      : options_(options),
        original_heads_(options.original_heads.resolve_for(layer_spec, "mixture-of-heads")),
        num_routed_heads_(original_heads_.count - options.shared_heads) {
    if (options.chosen_heads > num_routed_heads_)
      refuse_usage(layer_spec.name + ", combiner 'mixture-of-heads'",
                   str("at most ", original_heads_.count,
                       ", the number of heads, as the sum of "
                       "attention.mixture-of-heads.shared_heads and attention.mixture-of-heads.chosen_heads"),
                   str(options.shared_heads, " + ", options.chosen_heads),
                   "lower one of these keys, or raise attention.heads");
  }
  // The router of a pruned layer still chooses among all heads that the layer had before pruning.
  std::shared_ptr<StageOptions> options_after_pruning(const RemainingHeads& remaining_heads,
                                                      const LayerSpec& layer_spec) const override {
    if (static_cast<int64_t>(remaining_heads.value.size()) == layer_spec.value_heads) return nullptr;
    auto new_options = std::make_shared<MixtureOfHeadsOptions>(options_);
    new_options->original_heads = original_heads_.select(remaining_heads.value);
    return new_options;
  }
  void add_parameters(nn::ParameterList& parameters, const LayerSpec& layer_spec) override {
    router_weight_ = &parameters.add(layer_spec.name + kRouterName, {original_heads_.count, layer_spec.width},
                                     {nn::Init::xavier_uniform(), true, false, {original_heads_.axis(0)}});
    if (options_.shared_heads > 0)
      balance_weight_ = &parameters.add(layer_spec.name + ".combiner.balance.weight", {2, layer_spec.width},
                                        {nn::Init::xavier_uniform(), true, false});
  }
  bool has_head_gates() const override { return true; }
  at::Tensor head_weights(const Context& c) override {
    const at::Tensor x = c.query_input.to(at::kFloat);
    const at::Tensor router_logits = nn::linear(x, router_weight_->value(), {});  // (B, T, h)
    const at::Tensor p =
        at::softmax(router_logits.narrow(-1, options_.shared_heads, num_routed_heads_), -1);  // (B, T, r)
    const at::Tensor chosen_indices = std::get<1>(p.topk(options_.chosen_heads, -1));         // (B, T, k)
    const at::Tensor chosen_mask = at::zeros_like(p).scatter(-1, chosen_indices, 1.0);
    if (c.observer != nullptr) c.observer->notify_subscribers(c.layer_spec, RoutingObservation{p, chosen_mask});
    const at::Tensor selected_p = p * chosen_mask;
    at::Tensor w = selected_p * (static_cast<double>(options_.chosen_heads) / selected_p.sum(-1, true));
    if (balance_weight_ != nullptr) {
      const at::Tensor a = 2 * at::softmax(nn::linear(x, balance_weight_->value(), {}), -1);
      const at::Tensor shared_weights = at::softmax(router_logits.narrow(-1, 0, options_.shared_heads), -1) *
                                        static_cast<double>(options_.shared_heads);
      w = nn::cat({shared_weights * a.narrow(-1, 0, 1), w * a.narrow(-1, 1, 1)}, -1);
    }
    return show_gates(c, original_heads_.select_remaining_heads(w));
  }

 private:
  MixtureOfHeadsOptions options_;
  OriginalHeads original_heads_;  // the heads that the router was built for, and the heads that the layer still has
  int64_t num_routed_heads_;
  nn::Parameter *router_weight_ = nullptr, *balance_weight_ = nullptr;
};

const Registration<MixtureOfHeads> mixture_of_heads_entry(combiners(), "mixture-of-heads",
                                                          "weights of head outputs at each position; above 0 for the "
                                                          "shared heads and for the most probable of the routed heads");

}  // namespace
}  // namespace mh::attention
