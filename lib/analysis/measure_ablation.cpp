// Importance by ablation, and a random control.
//
//   ablation  increase of the loss without the head, nats per token; negative if the loss decreases
//   random    uniform random scores, seeded by the seed of the sample: a control that other measures should beat
#include <algorithm>

#include "analysis/ablation.h"
#include "analysis/importance.h"
#include "base/random.h"

namespace mh::analysis {

namespace {

using Scores = std::map<AttentionKind, LayerScores>;

// Returns a score of 0 for each head.
Scores zero_scores(const HeadSet& heads) {
  Scores scores;
  for (const auto& [kind, kind_heads] : heads)
    for (const Head& head : kind_heads) {
      LayerScores& layers = scores[kind];
      layers.resize(std::max(layers.size(), static_cast<size_t>(head.layer) + 1));
      layers[static_cast<size_t>(head.layer)].push_back(0);
    }
  return scores;
}

class Ablation : public ImportanceMeasure {
 public:
  Scores compute_scores(const AnalysisInput& input) const override {
    const HeadSet heads = all_heads(input.model, input.side, input.kinds);
    std::vector<HeadSet> masked_sets{{}};
    for (const auto& [kind, kind_heads] : heads)
      for (const Head& head : kind_heads) masked_sets.push_back({{kind, {head}}});
    const auto model_scores = score_ablations(input, masked_sets);
    Scores scores = zero_scores(heads);
    const auto num_tokens = static_cast<double>(std::max<int64_t>(1, model_scores[0].num_tokens));
    size_t i = 1;
    for (const auto& [kind, kind_heads] : heads)
      for (const Head& head : kind_heads)
        scores[kind][static_cast<size_t>(head.layer)][static_cast<size_t>(head.head)] =
            (model_scores[i++].nll - model_scores[0].nll) / num_tokens;
    return scores;
  }
};

class RandomMeasure : public ImportanceMeasure {
 public:
  bool reads_data() const override { return false; }
  bool uses_seed() const override { return true; }
  Scores compute_scores(const AnalysisInput& input) const override {
    Scores scores = zero_scores(all_heads(input.model, input.side, input.kinds));
    RandomSequence random(RandomStream(static_cast<uint64_t>(input.scoring_options.sample.seed), "importance"));
    for (auto& [kind, layers] : scores)
      for (auto& layer : layers)
        for (double& score : layer) score = random.uniform();
    return scores;
  }
};

const Registration<Ablation> ablation_entry(
    importance_measures(), "ablation", "Loss without the head minus the loss of the full model, in nats per token.");
const Registration<RandomMeasure> random_entry(importance_measures(), "random",
                                               "Random numbers, drawn with --seed, as a control.");

}  // namespace

}  // namespace mh::analysis
