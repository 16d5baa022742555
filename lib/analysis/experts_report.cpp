// Observes and replaces the gates of mixtures of experts.
#include "analysis/experts_report.h"

#include <c10/core/GradMode.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <optional>

#include "analysis/entropy.h"
#include "analysis/words.h"
#include "attention/gated_combiner.h"
#include "base/error.h"
#include "base/random.h"
#include "nn/aten.h"

namespace mh::analysis {

namespace {

using attention::GateObservation;
using attention::LayerSpec;

// Throws Error(usage) unless g are gates over experts, (B, E) or (B, Tq, E), that sum to 1.
void require_shares(const LayerSpec& layer_spec, const at::Tensor& g) {
  if (g.dim() >= 2 && (g.detach().to(at::kDouble).sum(-1) - 1).abs().max().item<double>() < 1e-3) return;
  throw Error(Exit::usage, Problem{layer_spec.name, "a mixture of experts, whose gates sum to 1",
                                   "gates of single heads, which do not sum to 1", "use a model with combiner 'mae'"});
}

// Counts the units of each expert and sums the entropy of the gates, layer by layer.
class GateWatch : public attention::Observer, public attention::Subscriber<GateObservation> {
 public:
  explicit GateWatch(Kinds kinds) : kinds_(std::move(kinds)) {}
  void begin(const attention::Lengths& lengths) override {
    lengths_ = lengths;
    first_ = at::Tensor();
  }

  void receive(const LayerSpec& layer_spec, GateObservation& observation) override {
    if (!contains(kinds_, layer_spec.kind)) return;
    c10::NoGradGuard no_gradient;
    require_shares(layer_spec, observation.gates);
    const at::Tensor g = observation.gates.detach().to(at::kCPU);
    const bool by_position = g.dim() == 3;
    const at::Tensor chosen = g.argmax(-1);  // (B) or (B, Tq)
    if (!first_.defined()) first_ = chosen, in_encoder_ = queries_of_encoder(layer_spec.kind);
    at::Tensor entropy = entropy_of_rows(g), units = chosen;
    if (const at::Tensor& lengths = lengths_.queries(layer_spec.kind); by_position && lengths.defined()) {
      const at::Tensor real = at::arange(g.size(1)).unsqueeze(0) < lengths.unsqueeze(1);
      entropy = entropy.masked_select(real), units = chosen.masked_select(real);
    }
    LayerGates& layer = layers_[layer_spec.name];
    if (layer.counts.empty()) {
      layer.kind = layer_spec.kind, layer.layer = layer_spec.layer, layer.by_position = by_position;
      layer.counts.resize(static_cast<size_t>(g.size(-1)));
      order_.push_back(layer_spec.name);
    }
    layer.units += units.numel();
    layer.entropy += entropy.sum().item<double>();
    const at::Tensor counts = units.flatten().bincount({}, g.size(-1));
    for (int64_t e = 0; e < counts.size(0); ++e) layer.counts[static_cast<size_t>(e)] += counts[e].item<int64_t>();
  }

  // Returns the expert of each unit of the last forward pass in the first layer with gates, (B) or (B, Tq).
  const at::Tensor& first() const { return first_; }
  bool in_encoder() const { return in_encoder_; }  // whether the first layer with gates is in the encoder
  Words words(int64_t row, int64_t positions) const { return words_of(lengths_, in_encoder_, row, positions); }
  std::vector<LayerGates> layers() const {
    std::vector<LayerGates> all;
    for (const std::string& name : order_) all.push_back(layers_.at(name));
    return all;
  }

 private:
  Kinds kinds_;
  attention::Lengths lengths_;
  at::Tensor first_;
  bool in_encoder_ = false;
  std::map<std::string, LayerGates> layers_;
  std::vector<std::string> order_;
};

// Replaces the gates of each unit by a one-hot vector.
class OneHotGates : public attention::Observer, public attention::Subscriber<GateObservation> {
 public:
  // `seed`: 0 selects the expert with the largest gate; any other value seeds the random choice of an expert.
  OneHotGates(int64_t seed, Kinds kinds) : seed_(seed), kinds_(std::move(kinds)) {}
  void begin(const attention::Lengths& lengths) override { lengths_ = lengths; }
  void receive(const LayerSpec& layer_spec, GateObservation& observation) override {
    if (!contains(kinds_, layer_spec.kind)) return;
    const at::Tensor g = observation.gates;
    at::Tensor chosen = g.argmax(-1);
    if (seed_ > 0) {
      // Each layer draws once per real unit, in order, so that batch size and padding do not change the draws.
      auto [at, added] = draws_.try_emplace(
          layer_spec.name, RandomStream(static_cast<uint64_t>(seed_), str("random experts ", name_of(layer_spec.kind))),
          0U, static_cast<uint32_t>(layer_spec.layer));
      const int64_t rows = chosen.size(0), units = chosen.dim() == 2 ? chosen.size(1) : 1;
      at::Tensor sampled = at::zeros({rows, units}, at::kLong);
      auto* out = sampled.mutable_data_ptr<int64_t>();
      const at::Tensor& lengths = lengths_.queries(layer_spec.kind);
      for (int64_t b = 0; b < rows; ++b, out += units) {
        const int64_t real = lengths.defined() ? std::min(units, lengths[b].item<int64_t>()) : units;
        for (int64_t i = 0; i < real; ++i)
          out[i] = static_cast<int64_t>(at->second.below(static_cast<uint64_t>(g.size(-1))));
      }
      sampled = sampled.view(chosen.sizes());
      chosen = sampled.to(g.device());
    }
    observation.gates = at::one_hot(chosen, g.size(-1)).to(g.scalar_type());
  }

 private:
  int64_t seed_;
  Kinds kinds_;
  attention::Lengths lengths_;
  std::map<std::string, RandomSequence> draws_;
};

double perplexity(const AnalysisInput& s, attention::Observer* observer) {
  task::ScoreObserver listener;
  listener.progress = s.progress;
  listener.observer = observer;
  const task::Score score = task::score(s.model, s.text, s.how, listener);
  return std::exp(score.nll / static_cast<double>(score.tokens));
}

}  // namespace

void require_experts(model::LanguageModel& model, const Kinds& kinds) {
  c10::NoGradGuard no_gradient;
  GateWatch watch(kinds);
  const at::Tensor token = at::zeros({1, 1}, at::TensorOptions().dtype(at::kLong).device(model.parameters().device()));
  model.hidden({token, model.has_encoder() ? token : at::Tensor()}, {}, nullptr, &watch);
  if (watch.layers().empty())
    throw Error(Exit::usage,
                Problem{"mh-spectrum experts", "a model with a mixture of experts",
                        kinds.empty() ? "no layer with gates" : "no layer with gates among the selected kinds",
                        "use a model with combiner 'mae'"});
}

std::map<AttentionKind, double> mean_entropies(const std::vector<LayerGates>& layers) {
  std::map<AttentionKind, std::vector<double>> entropies;
  for (const LayerGates& layer : layers)
    entropies[layer.kind].push_back(layer.entropy / static_cast<double>(layer.units));
  std::map<AttentionKind, double> means;
  for (const auto& [kind, all] : entropies)
    means[kind] = std::accumulate(all.begin(), all.end(), 0.0) / static_cast<double>(all.size());
  return means;
}

ExpertReport report_experts(const AnalysisInput& s, int64_t tokens, int64_t min_count) {
  c10::NoGradGuard no_gradient;
  GateWatch watch(s.kinds);
  std::map<std::pair<int64_t, int32_t>, int64_t> joint;  // number of occurrences, by expert and token id
  std::map<int32_t, int64_t> counts_by_token;
  std::map<int64_t, int64_t> counts_by_expert;
  double all = 0;
  data::BatchVisitor visitor;
  visitor.observer = &watch;
  visitor.progress = s.progress;
  visitor.visit = [&](const data::VisitedBatch& pass) {
    const model::Input& input = pass.batch.input;
    const at::Tensor first = watch.first().contiguous(),
                     inputs = (watch.in_encoder() ? input.source : input.tokens).contiguous();
    const auto* chosen = first.const_data_ptr<int64_t>();
    const auto* token = inputs.const_data_ptr<int64_t>();
    const int64_t width = inputs.size(1);
    const bool by_position = first.dim() == 2;
    for (size_t b = 0; b < pass.rows.size(); ++b) {
      const auto row = static_cast<int64_t>(b);
      const Words words = watch.words(row, width);
      // Positions before `scored` are context, which is not counted.
      for (int64_t t = std::max(words.first, pass.rows[b].scored); t < words.first + words.count; ++t) {
        const int64_t expert = by_position ? chosen[row * width + t] : chosen[row];
        const auto id = static_cast<int32_t>(token[row * width + t]);
        ++joint[{expert, id}], ++counts_by_token[id], ++counts_by_expert[expert], ++all;
      }
    }
  };
  data::for_each_batch(s.model, s.text, s.how, visitor);
  ExpertReport report{watch.layers(), watch.in_encoder(), {}};
  const auto cut = [&](std::vector<TokenOfExpert>& chosen_tokens) {
    std::stable_sort(chosen_tokens.begin(), chosen_tokens.end(),
                     [](const auto& a, const auto& b) { return a.pmi > b.pmi; });
    if (static_cast<int64_t>(chosen_tokens.size()) > tokens) chosen_tokens.resize(static_cast<size_t>(tokens));
    report.tokens.insert(report.tokens.end(), chosen_tokens.begin(), chosen_tokens.end());
    chosen_tokens.clear();
  };
  std::vector<TokenOfExpert> chosen_tokens;
  for (const auto& [key, count] : joint) {
    const auto& [expert, id] = key;
    if (!chosen_tokens.empty() && chosen_tokens.back().expert != expert) cut(chosen_tokens);
    if (count < min_count) continue;
    const double pmi =
        std::log(static_cast<double>(count) * all /
                 (static_cast<double>(counts_by_token[id]) * static_cast<double>(counts_by_expert[expert])));
    chosen_tokens.push_back({expert, id, count, pmi});
  }
  cut(chosen_tokens);
  return report;
}

std::vector<ExpertScore> evaluate_experts(const AnalysisInput& s, int64_t seeds,
                                          const std::function<double(attention::Observer*)>& evaluate) {
  const auto score = evaluate ? evaluate : [&](attention::Observer* observer) { return perplexity(s, observer); };
  const double none = std::numeric_limits<double>::quiet_NaN();
  OneHotGates own(0, s.kinds);
  std::vector<ExpertScore> scores{{"own", score(nullptr), none, 1}, {"specialised", score(&own), none, 1}};
  double sum = 0, squares = 0;
  std::vector<double> runs;
  for (int64_t seed = 1; seed <= seeds; ++seed) {
    OneHotGates random(seed, s.kinds);
    runs.push_back(score(&random));
    sum += runs.back();
  }
  const double mean = sum / static_cast<double>(seeds);
  for (double x : runs) squares += (x - mean) * (x - mean);
  scores.push_back({"random", mean, seeds > 1 ? std::sqrt(squares / static_cast<double>(seeds - 1)) : none, seeds});
  return scores;
}

}  // namespace mh::analysis
