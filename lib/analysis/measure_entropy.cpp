// The measure "entropy": minus the mean over queries of H(P) = -Σ_s P[s] ln P[s], nats. Like the measure "confidence",
// this measure ranks focused heads as important: a head with uniform attention returns the mean of all values, which
// needs no learned queries and keys.
//
// In sentences only queries that are words are counted (analysis/word_range.h). Rows of mixed heads may have negative
// entries, and rows of mixed heads or with a sink need not sum to 1; H is computed from |P| / Σ |P|.
#include "analysis/importance.h"

namespace mh::analysis {
namespace {

class EntropyMeasure : public AttentionMeasureObserver {
 public:
  using AttentionMeasureObserver::AttentionMeasureObserver;

 private:
  void observe_matrix(const attention::LayerSpec& layer_spec, const at::Tensor& p) override {
    for (int64_t b = 0; b < p.size(0); ++b) {
      const WordRange words = query_word_range(layer_spec.kind, b, p.size(2));
      const at::Tensor magnitude =
          p[b].narrow(1, words.begin, words.count).to(at::kDouble).abs();  // (h or hv, words, Tk)
      // A row of zeros stays zero and contributes 0.
      const at::Tensor normalised_p = magnitude / magnitude.sum(-1, true).clamp_min(1e-300);
      add(layer_spec, at::xlogy(normalised_p, normalised_p).sum({1, 2}), static_cast<double>(words.count));
    }
  }
};

const Registration<EntropyMeasure> entropy_entry(
    importance_measures(), "entropy",
    "Minus the mean entropy of attention, in nats: focused heads are important. For mixed probabilities, the absolute "
    "values of a row are divided by their sum.");

}  // namespace
}  // namespace mh::analysis
