// entropy: minus the mean over queries of H(P) = -Σ_s P[s] ln P[s], in nats. Focused attention counts as important, as
// with confidence: a head that spreads evenly over all it sees gives the same average whatever it reads, and its place
// could be taken by a constant pattern.
//
// Of sentences, queries are those of words (analysis/words.h). A mixed map may have negative entries and rows that do
// not sum to 1: H is of |P| divided by its row's sum.
#include "analysis/importance.h"

namespace mh::analysis {
namespace {

class Focus : public AttentionMeasure {
 public:
  using AttentionMeasure::AttentionMeasure;

 private:
  void look(const attention::Shape& shape, const at::Tensor& p) override {
    for (int64_t b = 0; b < p.size(0); ++b) {
      const Words words = query_words(shape.kind, b, p.size(2));
      const at::Tensor size = p[b].narrow(1, words.first, words.count).to(at::kDouble).abs();  // (h, words, Tk)
      // A row of zeros has no entropy.
      const at::Tensor parts = size / size.sum(-1, true).clamp_min(1e-300);
      add(shape, at::xlogy(parts, parts).sum({1, 2}), static_cast<double>(words.count));
    }
  }
};

const Registered<Focus> focus_entry(importances(), "entropy",
                                    "minus the mean entropy of attention: focused heads are important");

}  // namespace
}  // namespace mh::analysis
