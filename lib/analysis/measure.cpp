// Accumulates the scores of measures that observe forward passes.
#include "analysis/measure.h"

#include <c10/core/GradMode.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace mh::analysis {

void require_finite(const std::map<AttentionKind, LayerScores>& scores) {
  for (const auto& [kind, layers] : scores)
    for (size_t layer = 0; layer < layers.size(); ++layer)
      for (size_t head = 0; head < layers[layer].size(); ++head)
        if (const double score = layers[layer][head]; !std::isfinite(score))
          throw Error(Exit::failed,
                      Problem{str(name_of(kind), ", layer ", layer, ", head ", head), "a finite importance", str(score),
                              "use another checkpoint: the parameters are damaged, or training diverged"});
}

void MeasureObserver::reset() {
  means_.clear();
  lengths_ = {};
}

void MeasureObserver::add(const attention::LayerSpec& layer_spec, const at::Tensor& sums, double count) {
  contribute(LayerLabel{layer_spec.kind, layer_spec.layer}.text(),
             {sums.detach().to(at::kCPU, at::kDouble), at::full({}, count, at::kDouble)});
}

void MeasureObserver::add_contribution(const std::string& label, const Tensors& tensors) {
  const LayerLabel layer = LayerLabel::parse(label);
  Mean& mean = means_[layer.kind][layer.layer];
  mean.sums = mean.sums.defined() ? mean.sums + tensors[0] : tensors[0];
  mean.count += tensors[1].item<double>();
}

int64_t MeasureObserver::num_valid_queries(AttentionKind kind, int64_t row, int64_t num_queries) const {
  const at::Tensor& lengths = lengths_.queries(kind);
  return lengths.defined() ? std::min(num_queries, lengths[row].item<int64_t>()) : num_queries;
}

std::map<AttentionKind, LayerScores> MeasureObserver::mean_scores() const {
  std::map<AttentionKind, LayerScores> scores_by_kind;
  for (const auto& [kind, layers] : means_)
    for (const auto& [layer, mean] : layers) {
      LayerScores& scores = scores_by_kind[kind];
      scores.resize(std::max(scores.size(), static_cast<size_t>(layer) + 1));
      for (int64_t head = 0; head < mean.sums.size(0); ++head) {
        const double score = mean.sums[head].item<double>() / std::max(mean.count, 1.0);
        scores[static_cast<size_t>(layer)].push_back(score);
      }
    }
  require_finite(scores_by_kind);
  return scores_by_kind;
}

std::string AttentionMeasureObserver::why_undefined(const attention::AttentionLayer& layer) const {
  if (side() == SideSelection::output) return "output heads have no attention matrices; score and value heads do";
  if (side() == SideSelection::score && layer.mixer_input() == attention::MixerInput::logits)
    return "the mixer mixes logits, not attention probabilities";
  return "";
}

at::Tensor AttentionMeasureObserver::intercept_heads(attention::HeadSide observed_side,
                                                     const attention::LayerSpec& layer_spec, const at::Tensor& x) {
  c10::NoGradGuard no_gradient;
  if (observed_side == attention::HeadSide::score && side() == SideSelection::score) observe_matrix(layer_spec, x);
  return x;
}

void AttentionMeasureObserver::observe_probabilities(const attention::LayerSpec& layer_spec, const at::Tensor& p) {
  c10::NoGradGuard no_gradient;
  if (side() != SideSelection::score) observe_matrix(layer_spec, p);
}

}  // namespace mh::analysis
