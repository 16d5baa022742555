// Base classes of measures that observe forward passes and give each head of each layer a score. A higher score means a
// more important head.
//
// Sums are accumulated in fp64 over positions that are not padding; begin_batch() receives the sequence lengths, which
// exclude padding.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "analysis/additive_observer.h"
#include "analysis/analysis_input.h"
#include "analysis/heads.h"
#include "analysis/word_range.h"
#include "attention/layer.h"

namespace mh::analysis {

using LayerScores = std::vector<std::vector<double>>;  // [layer][head]; empty for a layer that was not observed
// Throws Error(failed) if a score is not finite, because such scores cannot be ranked.
void require_finite(const std::map<AttentionKind, LayerScores>& scores);

class MeasureObserver : public AdditiveObserver {
 public:
  explicit MeasureObserver(SideSelection side) : side_(side) {}
  // Returns why the measure is undefined for the layer's heads of side(); "" if it is defined.
  virtual std::string why_undefined(const attention::AttentionLayer& /*layer*/) const { return ""; }

  void begin_batch(const attention::Lengths& lengths) override { lengths_ = lengths; }
  void reset();
  // Returns the mean scores over all forward passes since construction or the last reset(). Throws like
  // require_finite().
  std::map<AttentionKind, LayerScores> mean_scores() const;

 protected:
  SideSelection side() const { return side_; }
  // Adds scores to the mean of the layer. `sums`: (h), (hv) or (ho), the score of each head, summed over `count`
  // positions, batch rows or forward passes.
  void add(const attention::LayerSpec& layer_spec, const at::Tensor& sums, double count);
  void add_contribution(const std::string& label, const Tensors& tensors) override;
  // Returns the number of real (not padding) queries of batch row `row`, at most `num_queries`.
  int64_t num_valid_queries(AttentionKind kind, int64_t row, int64_t num_queries) const;
  // Returns the positions of batch row `row` that are words (analysis/word_range.h), among its `num_queries` queries or
  // its `num_keys` keys.
  WordRange query_word_range(AttentionKind kind, int64_t row, int64_t num_queries) const {
    return word_range_of(lengths_, has_encoder_queries(kind), row, num_queries);
  }
  WordRange key_word_range(AttentionKind kind, int64_t row, int64_t num_keys) const {
    return word_range_of(lengths_, has_encoder_keys(kind), row, num_keys);
  }
  // Returns whether batch rows are sentences, which is the case if begin_batch() received lengths of encoder sequences.
  bool has_sentences() const { return lengths_.encoder.defined(); }

 private:
  struct Mean {
    at::Tensor sums;  // (h), (hv) or (ho), fp64
    double count = 0;
  };
  SideSelection side_;
  attention::Lengths lengths_;
  std::map<AttentionKind, std::map<int64_t, Mean>> means_;  // by kind and layer
};

// Base class of measures that read attention matrices: for score heads, the input of the mixer; for value heads and
// whole heads, the probabilities that are multiplied by the values.
class AttentionMeasureObserver : public MeasureObserver {
 public:
  using MeasureObserver::MeasureObserver;
  std::string why_undefined(const attention::AttentionLayer& layer) const override;
  at::Tensor intercept_heads(attention::HeadSide observed_side, const attention::LayerSpec& layer_spec,
                             const at::Tensor& x) override;
  void observe_probabilities(const attention::LayerSpec& layer_spec, const at::Tensor& p) override;

 protected:
  // Adds the scores of the heads with attention matrices p: (B, h, Tq, Tk) for score heads, otherwise (B, hv, Tq, Tk).
  virtual void observe_matrix(const attention::LayerSpec& layer_spec, const at::Tensor& p) = 0;
};

}  // namespace mh::analysis
