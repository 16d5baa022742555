// Base classes of measures that observe forward passes and give each head of each layer a score. A higher score means a
// more important head.
//
// Sums are fp64 and cover only real positions, whose number begin() receives; padding is left out.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "analysis/analysis_input.h"
#include "analysis/heads.h"
#include "analysis/words.h"
#include "attention/layer.h"

namespace mh::analysis {

using LayerScores = std::vector<std::vector<double>>;  // [layer][head]; empty for a layer that was not observed
// Throws Error(failed) if a score is not finite, because such scores cannot be ranked.
void require_finite(const std::map<AttentionKind, LayerScores>& scores);

class Measure : public attention::Observer {
 public:
  explicit Measure(Side side) : side_(side) {}
  // Returns why the measure is undefined for heads of its side in the layer; "" if it is defined.
  virtual std::string why_undefined(const attention::AttentionLayer& /*layer*/) const { return ""; }

  void begin(const attention::Lengths& lengths) override { lengths_ = lengths; }
  void reset();
  // Returns the mean scores of all passes since the start or the last reset(). Throws like require_finite().
  std::map<AttentionKind, LayerScores> mean_scores() const;

 protected:
  Side side() const { return side_; }
  // Adds sums (h), each over `count` items, to the mean of a layer.
  void add(const attention::LayerSpec& layer_spec, const at::Tensor& sums, double count);
  // Returns the number of real (not padding) queries of a row.
  int64_t real_queries(AttentionKind kind, int64_t row, int64_t queries) const;
  // Return the queries, or keys, of a row that are words (analysis/words.h).
  Words query_words(AttentionKind kind, int64_t row, int64_t queries) const {
    return words_of(lengths_, queries_of_encoder(kind), row, queries);
  }
  Words key_words(AttentionKind kind, int64_t row, int64_t keys) const {
    return words_of(lengths_, keys_of_encoder(kind), row, keys);
  }
  // Returns whether rows are sentences: begin() received the lengths of the encoder's sequences.
  bool sentences() const { return lengths_.encoder.defined(); }

 private:
  struct Mean {
    at::Tensor sums;  // (h) fp64
    double count = 0;
  };
  Side side_;
  attention::Lengths lengths_;
  std::map<AttentionKind, std::map<int64_t, Mean>> means_;  // by kind and layer
};

// A measure of attention matrices: for score heads, the input of the mixer; for other sides, the probabilities that the
// values are multiplied by.
class AttentionMeasure : public Measure {
 public:
  using Measure::Measure;
  std::string why_undefined(const attention::AttentionLayer& layer) const override;
  at::Tensor heads(attention::HeadSide of, const attention::LayerSpec& layer_spec, const at::Tensor& x) override;
  void probabilities(const attention::LayerSpec& layer_spec, const at::Tensor& p) override;

 protected:
  // Adds the scores of p (B, h, Tq, Tk).
  virtual void observe_matrix(const attention::LayerSpec& layer_spec, const at::Tensor& p) = 0;
};

}  // namespace mh::analysis
