// Importance by the largest attention probabilities (Voita et al. 2019): a confident head is important.
//
//   confidence  mean over queries of the largest probability of the row
//   received    mean over keys of the largest probability that any query gives the key. Source: the "advanced" variant
//               of head rotation by Azov & Landau. In self-attention the mean leaves out keys of a memory. In
//               cross-attention, if the lengths of the encoder's rows are unknown, the mean covers the keys to which
//               any head gives a nonzero probability
//
// With a sink (attention.sink) both read the probabilities without rescaling, so that a head that gives most of its
// mass to the sink is not confident.
//
// In sentences the mean of `confidence` covers only queries that are words, and the mean of `received` covers only keys
// that are words (analysis/word_range.h); the largest probability of a key is taken over all queries that are not
// padding. The published code leaves out only the last entry of the matrix, and counts padding.
#include "analysis/importance.h"

namespace mh::analysis {
namespace {

class Confidence : public AttentionMeasureObserver {
 public:
  using AttentionMeasureObserver::AttentionMeasureObserver;

 private:
  void observe_matrix(const attention::LayerSpec& layer_spec, const at::Tensor& p) override {
    const at::Tensor row_max = p.amax(-1).to(at::kDouble);  // (B, h or hv, Tq)
    for (int64_t b = 0; b < p.size(0); ++b) {
      const WordRange words = query_word_range(layer_spec.kind, b, p.size(2));
      add(layer_spec, row_max[b].narrow(1, words.begin, words.count).sum(1), static_cast<double>(words.count));
    }
  }
};

class ReceivedProbability : public AttentionMeasureObserver {
 public:
  using AttentionMeasureObserver::AttentionMeasureObserver;

 private:
  void observe_matrix(const attention::LayerSpec& layer_spec, const at::Tensor& p) override {
    const int64_t num_queries = p.size(2), num_keys = p.size(3);
    for (int64_t b = 0; b < p.size(0); ++b) {
      const int64_t num_valid = num_valid_queries(layer_spec.kind, b, num_queries);
      if (num_valid == 0) continue;
      at::Tensor valid_p = p[b].narrow(1, 0, num_valid);  // (h or hv, num_valid, Tk)
      if (has_sentences() || layer_spec.kind != AttentionKind::decoder_cross) {
        const int64_t num_memory_keys = layer_spec.kind == AttentionKind::decoder_cross ? 0 : num_keys - num_queries;
        const WordRange words = key_word_range(layer_spec.kind, b, num_keys - num_memory_keys);
        valid_p = valid_p.narrow(2, num_memory_keys + words.begin, words.count);
        add(layer_spec, valid_p.amax(1).to(at::kDouble).sum(1), static_cast<double>(words.count));
      } else {
        const at::Tensor is_attended = (valid_p != 0).any(1).any(0);  // (Tk)
        add(layer_spec, (valid_p.amax(1).to(at::kDouble) * is_attended).sum(1), is_attended.sum().item<double>());
      }
    }
  }
};

const Registration<Confidence> confidence_entry(importance_measures(), "confidence",
                                                "Mean over queries of the largest probability.");
const Registration<ReceivedProbability> received_entry(
    importance_measures(), "received",
    "Mean over keys of the largest probability that any query gives the key; the keys are the positions of the block, "
    "without memory, or of the sentence.");

}  // namespace
}  // namespace mh::analysis
