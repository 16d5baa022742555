// Mixture of attentive experts (Peng et al. 2020, "A Mixture of h - 1 Heads is Better than h Heads"). Let H_j = Z_j
// W^O_j be the contribution of head j to the output. Expert D omits the t heads of the set D:
//
//   f_D = h / (h - t) Σ_{j ∉ D} H_j,      y = Σ_D g_D f_D + b_O,      g = gate(x), Σ_D g_D = 1
//
// The mixture equals a scaling of each head before the output projection, without a loop over experts:
//
//   y = Σ_j w_j H_j + b_O,      w_j = h / (h - t) (1 - Σ_{D ∋ j} g_D),      Σ_j w_j = h
//
// x is the input of the query projection; the gate is in mae_gate.h. Training alternates between two kinds of passes. A
// G pass computes the whole mixture and trains the gate. An F pass (SampleExpertsRequest) takes g as a constant,
// samples one expert D ~ g in each layer for each unit, and trains all parameters except the gate; heads in D receive
// no gradient from this unit.
//
// In the paper, the unit is a training instance (table 2, to which table 4 refers for language models), that is, a
// batch row: a sentence or a row of a text (sample_unit = "sequence"). A causal gate has a distribution for each
// position of the row; the expert is sampled from the mean of these distributions over real positions. Only this
// sampling reads later positions, and only in training; with sample_unit = "position", the expert of each position is
// sampled from the distribution of that position.
#include "attention/gated_combiner.h"
#include "attention/methods/mae/experts.h"
#include "attention/methods/mae/mae_gate.h"
#include "attention/methods/mae/sample_experts.h"
#include "attention/uniform_per_row.h"
#include "base/error.h"
#include "nn/device.h"

namespace mh::attention {
namespace {

constexpr int64_t kMaxExperts = 10000;  // with more experts the gate would be the largest component of its layer

class MixtureOfExperts : public GatedCombiner {
 public:
  using Options = MaeOptions;
  MixtureOfExperts(const MaeOptions& options, const LayerSpec& layer_spec)
      : options_(resolve_heads(options, layer_spec)),
        num_original_heads_(options_.original_heads.count),
        num_remaining_heads_(layer_spec.value_heads),
        num_experts_(expert_count(num_original_heads_, options.omitted_heads)),
        gate_(options_, num_experts_) {
    auto refuse = [&](const char* key, const std::string& expected, const std::string& found,
                      const std::string& advice) {
      refuse_usage(str(layer_spec.name, ", attention.mae.", key), expected, found, advice);
    };
    if (options.omitted_heads >= num_original_heads_)
      refuse("omitted_heads", str("less than ", num_original_heads_, ", the number of heads of the layer"),
             found_value(options.omitted_heads, MaeOptions{}.omitted_heads),
             "lower attention.mae.omitted_heads, or raise attention.heads");
    if (num_experts_ > kMaxExperts)
      refuse("omitted_heads", str("at most ", kMaxExperts, " experts, one for each choice of the omitted heads"),
             str("more experts, for ", options.omitted_heads, " omitted heads of ", num_original_heads_),
             "lower attention.mae.omitted_heads");
    if (options.mean == MaeOptions::Mean::full && options.window > 0)
      refuse("window", "0 with mean = \"full\"", str(options.window),
             "set attention.mae.window to 0, since only the causal mean has a window");
    const bool is_decoder = layer_spec.kind != AttentionKind::encoder_self;
    if (!capabilities().supports_causal_attention && is_decoder)
      refuse("mean", "\"causal\" in a decoder layer", "\"full\", which lets gates read later tokens",
             str("set attention.", name_of(layer_spec.kind), ".mae.mean = \"causal\""));
  }

  // Pruning keeps all experts and the whole gate; only the factors of pruned heads are dropped.
  std::shared_ptr<StageOptions> options_after_pruning(const RemainingHeads& remaining_heads,
                                                      const LayerSpec& layer_spec) const override {
    if (static_cast<int64_t>(remaining_heads.value.size()) == layer_spec.value_heads) return nullptr;
    auto new_options = std::make_shared<MaeOptions>(options_);
    new_options->original_heads = options_.original_heads.select(remaining_heads.value);
    return new_options;
  }

  void add_parameters(nn::ParameterList& parameters, const LayerSpec& layer_spec) override {
    if (options_.gate == MaeOptions::Gate::learned) gate_.add_parameters(parameters, layer_spec);
  }

  Capabilities capabilities() const override {
    Capabilities result;
    if (options_.gate == MaeOptions::Gate::learned && options_.mean == MaeOptions::Mean::full)
      result.supports_causal_attention = result.supports_cross_attention = result.supports_incremental_decoding = false;
    return result;
  }

  at::Tensor as_linear_map() const override {
    return options_.gate == MaeOptions::Gate::uniform ? at::eye(num_remaining_heads_) : at::Tensor();
  }

  bool has_head_gates() const override { return true; }
  // Returns false for learned gates, which sample only in passes with a SampleExpertsRequest.
  bool samples_on_host() const override { return options_.gate == MaeOptions::Gate::uniform; }
  at::Tensor head_weights(const Context& c) override {
    return options_.gate == MaeOptions::Gate::learned ? learned_factors(c) : uniform_factors(c);
  }

 private:
  // Returns the factors of the heads for learned gates, (B, hv) or (B, Tq, hv).
  at::Tensor learned_factors(const Context& c) {
    at::Tensor g = show_gates(c, gate_(c), true);
    if (c.forward_context.request<SampleExpertsRequest>() != nullptr) {
      if (g.dim() == 3 && options_.sample_unit == MaeOptions::Unit::sequence) g = masked_mean(g, make_query_mask(c));
      return factors_of_experts(sample_experts(c, g.dim() == 3, g));
    }
    return factors_of(g);
  }

  // Returns the factors of the heads for uniform gates, (B, hv) or (B, Tq, hv); undefined if all factors are 1.
  at::Tensor uniform_factors(const Context& c) {
    const int64_t batch_size = c.query_input.size(0);
    if (c.observer != nullptr) {
      const at::Tensor uniform_gates = at::full({batch_size, num_experts_}, 1 / static_cast<double>(num_experts_),
                                                c.query_input.options().dtype(at::kFloat));
      if (const at::Tensor g = show_gates(c, uniform_gates, true); !g.is_same(uniform_gates)) return factors_of(g);
    }
    // Evaluation computes the whole mixture; uniform gates then scale every head by 1.
    if (!c.forward_context.training) return {};
    return factors_of_experts(sample_experts(
        c, options_.mean == MaeOptions::Mean::causal && options_.sample_unit == MaeOptions::Unit::position, {}));
  }

  static MaeOptions resolve_heads(MaeOptions options, const LayerSpec& layer_spec) {
    options.original_heads = options.original_heads.resolve_for(layer_spec, "mae");
    return options;
  }
  // Returns the factors (…, hv) of the remaining heads of the layer, for the gates (…, E) of the experts.
  at::Tensor factors_of(const at::Tensor& g) {
    return options_.original_heads.select_remaining_heads(expert_scale() *
                                                          (1 - at::matmul(g, omission_matrix(g.device()))));
  }
  double expert_scale() const {
    return static_cast<double>(num_original_heads_) / static_cast<double>(num_original_heads_ - options_.omitted_heads);
  }

  // Returns the matrix (E, original heads) with 1 where the expert omits the head, otherwise 0.
  const at::Tensor& omission_matrix(at::Device device) {
    if (omission_matrix_.defined() && omission_matrix_.device() == device) return omission_matrix_;
    at::Tensor matrix = at::zeros({num_experts_, num_original_heads_}, at::kFloat);
    auto* row = matrix.mutable_data_ptr<float>();
    for (const auto& expert : omitted_heads_by_expert(num_original_heads_, options_.omitted_heads)) {
      for (int64_t head : expert) row[head] = 1;
      row += num_original_heads_;
    }
    return omission_matrix_ = matrix.to(device);
  }

  // Returns the factors of the remaining heads, (B, hv) or (B, Tq, hv), for the indices of sampled experts, (B) or (B,
  // Tq).
  at::Tensor factors_of_experts(const at::Tensor& expert_indices) {
    auto sizes = expert_indices.sizes().vec();
    sizes.push_back(num_original_heads_);
    return options_.original_heads.select_remaining_heads(
        (expert_scale() * (1 - omission_matrix(expert_indices.device()).index_select(0, expert_indices.flatten())))
            .view(sizes));
  }

  // Samples one expert for each batch row or position, from the gates g (B, E) or (B, Tq, E), or uniformly if g is
  // undefined. Returns the indices of the experts, int64, (B) or (B, Tq). The samples of positions do not depend on
  // padding.
  at::Tensor sample_experts(const Context& c, bool is_per_position, const at::Tensor& g) const {
    at::Tensor u = uniform_per_row(c, "experts", is_per_position ? c.query_input.size(1) : 1);
    if (!is_per_position) u = u.squeeze(1);
    u = nn::to_device(u, c.query_input.device());
    if (!g.defined()) return (u.to(at::kDouble) * static_cast<double>(num_experts_)).to(at::kLong);
    return (g.cumsum(-1) <= u.unsqueeze(-1)).sum(-1).clamp_max(num_experts_ - 1);
  }

  MaeOptions options_;
  int64_t num_original_heads_;   // number of heads before pruning; each expert omits some of these heads
  int64_t num_remaining_heads_;  // number of heads after pruning
  int64_t num_experts_;
  ExpertGate gate_;
  at::Tensor omission_matrix_;  // (E, original heads): cached result of omission_matrix()
};

const Registration<MixtureOfExperts> mixture_of_experts_entry(
    combiners(), "mae", "gated mixture of experts, each of which omits some of the heads");

}  // namespace
}  // namespace mh::attention
