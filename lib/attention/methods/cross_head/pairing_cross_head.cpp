// Stochastic cross-head attention. In training, with probability β for each layer and update, π is a random permutation
// of the heads, and query head i reads the keys, position embeddings and values of head π(i); otherwise, and in
// evaluation, π is the identity:
//
//   A_i = score(Q_i, K_π(i)),  Z_i = P_i V_π(i)
//
// The queries, the biases of a relative score and the blocks of the output projection are not permuted. In each
// layer, all rows of the batch of an update share one permutation, also in different micro-batches and processes. In
// grouped-query attention, π permutes the hkv key/value heads, and all query heads of a group read the same head.
#include <numeric>

#include "attention/stage.h"
#include "base/error.h"
#include "base/random.h"

namespace mh::attention {
namespace {

struct CrossHeadOptions : OptionsOf<CrossHeadOptions> {
  double rate = 0.1;
  void describe(Fields& f) override {
    f.field(
        "rate", rate,
        "probability, for each layer and training update, of a random permutation of heads (beta of the publication)",
        between(0, 1));
  }
};

class CrossHead : public Pairing {
 public:
  using Options = CrossHeadOptions;
  CrossHead(const CrossHeadOptions& options, const LayerSpec& layer_spec) : rate_(options.rate) {
    require_same_heads(layer_spec.heads == layer_spec.value_heads, layer_spec,
                       str(layer_spec.heads, " score heads and ", layer_spec.value_heads, " value heads"));
  }
  std::shared_ptr<StageOptions> options_after_pruning(const RemainingHeads& remaining_heads,
                                                      const LayerSpec& layer_spec) const override {
    require_same_heads(remaining_heads.score == remaining_heads.value, layer_spec,
                       "a score head pruned without its value head, or the reverse");
    return nullptr;
  }

  void pair(Context& c) override {
    if (!c.forward_context.training || rate_ == 0) return;
    RandomSequence random(RandomStream(c.forward_context.seed, std::string(name_of(c.layer_spec.kind)) + ".cross-head"),
                          c.forward_context.update, static_cast<uint32_t>(c.layer_spec.layer));
    if (random.uniform() >= rate_) return;
    std::vector<int64_t> permutation(static_cast<size_t>(c.layer_spec.k_heads()));
    std::iota(permutation.begin(), permutation.end(), 0);
    random.shuffle(permutation);
    if (c.kv_head_of.empty()) c.kv_head_of = permutation;
    else
      for (int64_t& head : c.kv_head_of) head = permutation[static_cast<size_t>(head)];
  }

  bool samples_on_host() const override { return rate_ > 0; }
  std::string why_not_fused() const override { return ""; }

 private:
  // Throws Error(usage) if `have_same_heads` is false: one permutation applies to keys and values, so keys and values
  // must have the same heads. `found`: the actual heads, for the message.
  static void require_same_heads(bool have_same_heads, const LayerSpec& layer_spec, const std::string& found) {
    if (!have_same_heads)
      refuse_usage(layer_spec.name + ", pairing 'cross-head'", "the same heads for keys and values", found,
                   "prune the same heads on all sides, or set attention.pairing = \"own\"");
  }

  double rate_;
};

const Registration<CrossHead> cross_head_entry(
    pairings(), "cross-head", "in training, random permutations of the key/value heads that the query heads read");

}  // namespace
}  // namespace mh::attention
