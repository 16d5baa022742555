// Observes and replaces the gates of mixtures of experts.
#include "analysis/experts_report.h"

#include <c10/core/GradMode.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <optional>

#include "analysis/entropy.h"
#include "analysis/word_range.h"
#include "attention/gated_combiner.h"
#include "base/error.h"
#include "base/random.h"
#include "nn/aten.h"

namespace mh::analysis {

namespace {

using attention::GateObservation;
using attention::LayerSpec;

// Counts the units of each expert and sums the entropy of the gates, layer by layer. Of the last forward pass, also
// stores the expert of each unit in the first layer with experts.
class GateObserver : public attention::Observer, public attention::Subscriber<GateObservation> {
 public:
  explicit GateObserver(Kinds kinds) : kinds_(std::move(kinds)) {}
  const char* why_composed() const override { return nullptr; }
  void begin_batch(const attention::Lengths& lengths) override {
    lengths_ = lengths;
    first_layer_experts_ = at::Tensor();
  }

  void receive(const LayerSpec& layer_spec, GateObservation& observation) override {
    if (!observation.is_mixture || !contains(kinds_, layer_spec.kind)) return;
    c10::NoGradGuard no_gradient;
    const at::Tensor g = observation.gates.detach().to(at::kCPU);
    const bool is_per_position = g.dim() == 3;
    const at::Tensor experts = g.argmax(-1);  // (B) or (B, Tq)
    if (!first_layer_experts_.defined())
      first_layer_experts_ = experts, is_in_encoder_ = has_encoder_queries(layer_spec.kind);
    at::Tensor unit_entropies = entropy_of_rows(g), unit_experts = experts;
    if (const at::Tensor& lengths = lengths_.queries(layer_spec.kind); is_per_position && lengths.defined()) {
      const at::Tensor is_valid = at::arange(g.size(1)).unsqueeze(0) < lengths.unsqueeze(1);
      unit_entropies = unit_entropies.masked_select(is_valid), unit_experts = experts.masked_select(is_valid);
    }
    LayerGates& layer = layers_[layer_spec.name];
    if (layer.unit_counts.empty()) {
      layer.kind = layer_spec.kind, layer.layer = layer_spec.layer, layer.is_per_position = is_per_position;
      layer.unit_counts.resize(static_cast<size_t>(g.size(-1)));
      layer_order_.push_back(layer_spec.name);
    }
    layer.num_units += unit_experts.numel();
    layer.entropy_sum += unit_entropies.sum().item<double>();
    const at::Tensor counts = unit_experts.flatten().bincount({}, g.size(-1));
    for (int64_t e = 0; e < counts.size(0); ++e) layer.unit_counts[static_cast<size_t>(e)] += counts[e].item<int64_t>();
  }

  // Returns, for the first layer with gates, the index of the expert to which each unit of the last forward pass
  // belongs, (B) or (B, Tq).
  const at::Tensor& first_layer_experts() const { return first_layer_experts_; }
  bool is_in_encoder() const { return is_in_encoder_; }  // whether the first layer with gates is in the encoder
  WordRange word_range(int64_t row, int64_t num_positions) const {
    return word_range_of(lengths_, is_in_encoder_, row, num_positions);
  }
  std::vector<LayerGates> layers() const {
    std::vector<LayerGates> ordered_layers;
    for (const std::string& name : layer_order_) ordered_layers.push_back(layers_.at(name));
    return ordered_layers;
  }

 private:
  Kinds kinds_;
  attention::Lengths lengths_;
  at::Tensor first_layer_experts_;
  bool is_in_encoder_ = false;
  std::map<std::string, LayerGates> layers_;
  std::vector<std::string> layer_order_;
};

// Replaces the gates of the experts of each unit by a one-hot vector.
class OneHotGateObserver : public attention::Observer, public attention::Subscriber<GateObservation> {
 public:
  // `seed`: 0 selects the expert with the largest gate; a positive value seeds the random choice of an expert.
  OneHotGateObserver(int64_t seed, Kinds kinds) : seed_(seed), kinds_(std::move(kinds)) {}
  const char* why_composed() const override { return nullptr; }
  void begin_batch(const attention::Lengths& lengths) override { lengths_ = lengths; }
  void receive(const LayerSpec& layer_spec, GateObservation& observation) override {
    if (!observation.is_mixture || !contains(kinds_, layer_spec.kind)) return;
    const at::Tensor g = observation.gates;
    at::Tensor experts = g.argmax(-1);
    if (seed_ > 0) {
      // Each layer draws one expert for each unit that is not padding, in order, so that batch size and padding do not
      // change the draws.
      auto& layer_random =
          random_by_layer_
              .try_emplace(layer_spec.name,
                           RandomStream(static_cast<uint64_t>(seed_), str("random experts ", name_of(layer_spec.kind))),
                           0U, static_cast<uint32_t>(layer_spec.layer))
              .first->second;
      const int64_t num_rows = experts.size(0), units_per_row = experts.dim() == 2 ? experts.size(1) : 1;
      at::Tensor sampled_experts = at::zeros({num_rows, units_per_row}, at::kLong);
      auto* out = sampled_experts.mutable_data_ptr<int64_t>();
      const at::Tensor& lengths = lengths_.queries(layer_spec.kind);
      for (int64_t b = 0; b < num_rows; ++b, out += units_per_row) {
        const int64_t num_valid =
            lengths.defined() ? std::min(units_per_row, lengths[b].item<int64_t>()) : units_per_row;
        for (int64_t i = 0; i < num_valid; ++i)
          out[i] = static_cast<int64_t>(layer_random.uniform_below(static_cast<uint64_t>(g.size(-1))));
      }
      sampled_experts = sampled_experts.view(experts.sizes());
      experts = sampled_experts.to(g.device());
    }
    observation.gates = at::one_hot(experts, g.size(-1)).to(g.scalar_type());
  }

 private:
  int64_t seed_;
  Kinds kinds_;
  attention::Lengths lengths_;
  std::map<std::string, RandomSequence> random_by_layer_;
};

double compute_loss(const AnalysisInput& analysis_input, LossValue loss_value, attention::Observer* observer) {
  task::ScoreCallbacks callbacks;
  callbacks.on_progress = analysis_input.progress;
  callbacks.observer = observer;
  return value_of(loss_value,
                  task::score(analysis_input.model, analysis_input.corpus, analysis_input.scoring_options, callbacks));
}

}  // namespace

void require_experts(model::LanguageModel& model, const Kinds& kinds) {
  c10::NoGradGuard no_gradient;
  GateObserver gate_observer(kinds);
  const at::Tensor token = at::zeros({1, 1}, at::TensorOptions().dtype(at::kLong).device(model.parameters().device()));
  model.hidden({token, model.has_encoder() ? token : at::Tensor()}, {}, nullptr, &gate_observer);
  if (gate_observer.layers().empty())
    refuse_usage(
        "experts", "a model with a mixture of attentive experts",
        kinds.empty() ? "no layer with gates of experts" : "no layer with gates of experts among the selected kinds",
        "use a model with attention.combiner='mae'");
}

std::map<AttentionKind, double> mean_entropies(const std::vector<LayerGates>& layers) {
  std::map<AttentionKind, std::vector<double>> entropies;
  for (const LayerGates& layer : layers)
    entropies[layer.kind].push_back(layer.entropy_sum / static_cast<double>(layer.num_units));
  std::map<AttentionKind, double> means;
  for (const auto& [kind, layer_entropies] : entropies)
    means[kind] = std::accumulate(layer_entropies.begin(), layer_entropies.end(), 0.0) /
                  static_cast<double>(layer_entropies.size());
  return means;
}

ExpertReport report_experts(const AnalysisInput& analysis_input, int64_t max_tokens, int64_t min_count) {
  c10::NoGradGuard no_gradient;
  GateObserver gate_observer(analysis_input.kinds);
  std::map<std::pair<int64_t, int32_t>, int64_t> joint_counts;  // number of occurrences, by expert and token id
  std::map<int32_t, int64_t> counts_by_token;
  std::map<int64_t, int64_t> counts_by_expert;
  double total_count = 0;
  data::BatchVisitor visitor;
  visitor.observer = &gate_observer;
  visitor.on_progress = analysis_input.progress;
  visitor.visit = [&](const data::ForwardedBatch& pass) {
    const model::Input& input = pass.batch.input;
    const at::Tensor first_layer_experts = gate_observer.first_layer_experts().contiguous(),
                     inputs = (gate_observer.is_in_encoder() ? input.source : input.tokens).contiguous();
    const auto* expert_of_unit = first_layer_experts.const_data_ptr<int64_t>();
    const auto* token_ids = inputs.const_data_ptr<int64_t>();
    const int64_t padded_length = inputs.size(1);
    const bool is_per_position = first_layer_experts.dim() == 2;
    for (size_t b = 0; b < pass.rows.size(); ++b) {
      const auto row = static_cast<int64_t>(b);
      const WordRange words = gate_observer.word_range(row, padded_length);
      // Positions before `num_context` are context, which is not counted.
      for (int64_t t = std::max(words.begin, pass.rows[b].num_context); t < words.begin + words.count; ++t) {
        const int64_t expert = is_per_position ? expert_of_unit[row * padded_length + t] : expert_of_unit[row];
        const auto id = static_cast<int32_t>(token_ids[row * padded_length + t]);
        ++joint_counts[{expert, id}], ++counts_by_token[id], ++counts_by_expert[expert], ++total_count;
      }
    }
  };
  data::for_each_batch(analysis_input.model, analysis_input.corpus, analysis_input.scoring_options, visitor);
  ExpertReport report{gate_observer.layers(), gate_observer.is_in_encoder(), {}};
  const auto append_top_tokens = [&](std::vector<ExpertToken>& expert_tokens) {
    std::stable_sort(expert_tokens.begin(), expert_tokens.end(),
                     [](const auto& a, const auto& b) { return a.pmi > b.pmi; });
    if (static_cast<int64_t>(expert_tokens.size()) > max_tokens) expert_tokens.resize(static_cast<size_t>(max_tokens));
    report.tokens.insert(report.tokens.end(), expert_tokens.begin(), expert_tokens.end());
    expert_tokens.clear();
  };
  std::vector<ExpertToken> expert_tokens;
  for (const auto& [key, count] : joint_counts) {
    const auto& [expert, id] = key;
    if (!expert_tokens.empty() && expert_tokens.back().expert != expert) append_top_tokens(expert_tokens);
    if (count < min_count) continue;
    const double pmi =
        std::log(static_cast<double>(count) * total_count /
                 (static_cast<double>(counts_by_token[id]) * static_cast<double>(counts_by_expert[expert])));
    expert_tokens.push_back({expert, id, count, pmi});
  }
  append_top_tokens(expert_tokens);
  return report;
}

std::vector<ExpertScore> evaluate_experts(const AnalysisInput& analysis_input, int64_t num_seeds,
                                          const std::function<double(attention::Observer*)>& evaluate,
                                          LossValue loss_value) {
  const auto compute_score = evaluate ? evaluate : [&](attention::Observer* observer) {
    return compute_loss(analysis_input, loss_value, observer);
  };
  const double no_deviation = std::numeric_limits<double>::quiet_NaN();
  OneHotGateObserver specialised_observer(0, analysis_input.kinds);
  std::vector<ExpertScore> scores{{"own", compute_score(nullptr), no_deviation, 1},
                                  {"specialised", compute_score(&specialised_observer), no_deviation, 1}};
  double sum = 0, squares = 0;
  std::vector<double> random_scores;
  for (int64_t seed = 1; seed <= num_seeds; ++seed) {
    OneHotGateObserver random_observer(seed, analysis_input.kinds);
    random_scores.push_back(compute_score(&random_observer));
    sum += random_scores.back();
  }
  const double mean = sum / static_cast<double>(num_seeds);
  for (double x : random_scores) squares += (x - mean) * (x - mean);
  scores.push_back({"random", mean,
                    num_seeds > 1 ? std::sqrt(squares / static_cast<double>(num_seeds - 1)) : no_deviation, num_seeds});
  return scores;
}

}  // namespace mh::analysis
