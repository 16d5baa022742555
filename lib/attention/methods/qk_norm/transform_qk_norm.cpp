// RMS norm of queries and keys (Henry et al. 2020; Dehghani et al. 2023; with an RMS norm as in Qwen3 and OLMo 2):
//
//   q ← w_q ⊙ q / √(mean(q²) + ε),   k ← w_k ⊙ k / √(mean(k²) + ε)
//
// With scope = "head", q and k (dk) are of one head, and all heads share the weights (dk). With scope = "joint",
// q (h dk) and k (hkv dk) are of all heads of a position, so that the scale of each head depends on all heads. Means
// are fp32.
#include "attention/stage.h"
#include "base/error.h"
#include "nn/ops.h"

namespace mh::attention {
namespace {

enum class Scope { head, joint };

struct QkNormOptions : OptionsOf<QkNormOptions> {
  Scope scope = Scope::head;
  double epsilon = 1e-6;
  void describe(Fields& f) override {
    f.choice("scope", scope, {{Scope::head, "head"}, {Scope::joint, "joint"}},
             "elements that are normed together; head: of one head, with weights that all heads share; joint: of all "
             "heads of a position, with a weight for each element");
    f.field("epsilon", epsilon, "number that is added to the mean square", positive());
  }
};

class QkNorm : public Transform {
 public:
  using Options = QkNormOptions;
  QkNorm(const QkNormOptions& options, const LayerSpec&) : options_(options) {}

  void add_parameters(nn::ParameterList& parameters, const LayerSpec& layer_spec) override {
    const auto add = [&](const char* suffix, int64_t num_heads, HeadSide side) {
      const bool is_joint = options_.scope == Scope::joint;
      nn::ParameterTraits traits{nn::Init::constant(1), false, false};
      if (is_joint) traits.head_axes = {{0, num_heads, side}};
      const int64_t size = is_joint ? num_heads * layer_spec.key_size : layer_spec.key_size;
      return &parameters.add(layer_spec.name + suffix, {size}, traits);
    };
    query_weight_ = add(".query_norm.weight", layer_spec.heads, HeadSide::score);
    key_weight_ =
        add(".key_norm.weight", layer_spec.k_heads(), layer_spec.is_grouped() ? HeadSide::key_value : HeadSide::score);
  }

  std::shared_ptr<StageOptions> options_after_pruning(const RemainingHeads& remaining_heads,
                                                      const LayerSpec& layer_spec) const override {
    if (options_.scope == Scope::joint && static_cast<int64_t>(remaining_heads.score.size()) != layer_spec.heads)
      refuse_usage(layer_spec.name + ", transform 'qk-norm'",
                   "all score heads or none pruned, since with attention.qk-norm.scope=joint one norm ties all heads "
                   "together",
                   str(remaining_heads.score.size(), " of ", layer_spec.heads, " heads remain"),
                   "prune all heads of the layer, or only heads of other layers");
    return nullptr;
  }

  std::shared_ptr<StageOptions> options_after_padding(const LayerSpec& layer_spec) const override {
    refuse_usage(layer_spec.name + ", transform 'qk-norm'",
                 "a layer whose results do not change if zeros are appended to queries and keys",
                 "a norm over the elements of queries and keys, whose mean square depends on their number",
                 "do not change the head size of models with the transform qk-norm");
  }

  std::string why_not_fused() const override { return ""; }
  bool is_per_query() const override { return true; }

  void transform(Context& c) override {
    c.q = norm(c.q, *query_weight_);
    // A step of incremental decoding of cross-attention has no new keys.
    if (c.k.numel() > 0) c.k = norm(c.k, *key_weight_);
  }

 private:
  // Returns the norm of x (B, heads, T, dk), stored as (B, T, heads, dk).
  at::Tensor norm(const at::Tensor& x, const nn::Parameter& weight) const {
    at::Tensor by_position = x.transpose(1, 2);  // (B, T, heads, dk)
    if (options_.scope == Scope::head)
      return nn::rms_norm(by_position, weight.value(), options_.epsilon).transpose(1, 2);
    const at::Tensor joint = nn::rms_norm(by_position.flatten(2), weight.value(), options_.epsilon);
    return joint.view(by_position.sizes()).transpose(1, 2);
  }

  const QkNormOptions options_;
  nn::Parameter *query_weight_ = nullptr, *key_weight_ = nullptr;
};

const Registration<QkNorm> qk_norm_entry(transforms(), "qk-norm", "RMS norm of queries and of keys");

}  // namespace
}  // namespace mh::attention
