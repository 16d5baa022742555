// Importance by the distance to the other heads of the layer: a head similar to other heads is redundant.
//
//   avg-l2          for head i, the mean over heads j ≠ i of |P_j - P_i|₂, with P the attention matrix of a row of the
//                   batch (Tq·Tk numbers; with a sink, the probabilities of the keys only), averaged over rows
//   avg-l2-outputs  for head i, the mean over heads j ≠ i of |Z_j - Z_i|₂, with Z the head outputs or, for
//                   output heads, the result of the combiner (Tq·dv numbers), averaged over rows
//
// Source: head rotation by Azov & Landau. The published code includes padding, which these measures leave out.
#include <c10/core/GradMode.h>

#include <algorithm>

#include "analysis/importance.h"

namespace mh::analysis {
namespace {

// Returns the mean distance Σ_j |x_j - x_i|₂ / (h - 1) of each row i of x (h, n) to the other rows, (h).
at::Tensor mean_distances(const at::Tensor& x) {
  // Mode 2 of cdist uses no matrix product, in which small distances would be lost to cancellation.
  constexpr int64_t kNoMatmul = 2;
  const at::Tensor heads = x.to(at::kDouble), distances = at::cdist(heads, heads, 2, kNoMatmul);  // (h, h)
  return distances.sum(1) / static_cast<double>(std::max<int64_t>(1, x.size(0) - 1));
}

class ProbabilityDistance : public AttentionMeasureObserver {
 public:
  using AttentionMeasureObserver::AttentionMeasureObserver;

 private:
  void observe_matrix(const attention::LayerSpec& layer_spec, const at::Tensor& p) override {
    for (int64_t b = 0; b < p.size(0); ++b)
      if (const int64_t num_valid = num_valid_queries(layer_spec.kind, b, p.size(2)); num_valid > 0)
        add(layer_spec, mean_distances(p[b].narrow(1, 0, num_valid).flatten(1)), 1);
  }
};

class OutputDistance : public MeasureObserver {
 public:
  using MeasureObserver::MeasureObserver;
  std::string why_undefined(const attention::AttentionLayer&) const override {
    return side() == SideSelection::score ? "score heads have no outputs; value and output heads do" : "";
  }
  at::Tensor intercept_heads(attention::HeadSide observed_side, const attention::LayerSpec& layer_spec,
                             const at::Tensor& x) override {
    if (observed_side == (side() == SideSelection::output ? attention::HeadSide::output : attention::HeadSide::value))
      add_distances(layer_spec, x);
    return x;
  }

 private:
  void add_distances(const attention::LayerSpec& layer_spec, const at::Tensor& z) {  // (B, hv or ho, Tq, dv)
    c10::NoGradGuard no_gradient;
    for (int64_t b = 0; b < z.size(0); ++b)
      if (const int64_t num_valid = num_valid_queries(layer_spec.kind, b, z.size(2)); num_valid > 0)
        add(layer_spec, mean_distances(z[b].narrow(1, 0, num_valid).flatten(1)), 1);
  }
};

const Registration<ProbabilityDistance> probability_distance_entry(
    importance_measures(), "avg-l2",
    "Mean distance |P_j - P_i| between the attention matrix of the head and the matrices of the other heads of the "
    "layer.");
const Registration<OutputDistance> output_distance_entry(
    importance_measures(), "avg-l2-outputs",
    "Mean distance between the output of the head and the outputs of the other heads of the layer.");

}  // namespace
}  // namespace mh::analysis
