// A measure of heads that looks at forward passes, whoever runs them: it gives a score for each head of each layer. A
// higher score is a more important head, whatever the measure.
//
// Sums are in double precision, over the real positions, those that begin() names.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "analysis/heads.h"
#include "analysis/subject.h"
#include "analysis/words.h"
#include "attention/layer.h"

namespace mh::analysis {

using LayerScores = std::vector<std::vector<double>>;  // [layer][head]; none for a layer that was not shown
// Error(failed) where a score is not finite: such heads have no order.
void require_finite(const std::map<Kind, LayerScores>& scores);

class Measure : public attention::Observer {
 public:
  explicit Measure(Side side) : side_(side) {}
  // Why a layer's heads of this side have no such score; "" where they have one.
  virtual std::string none_because(const attention::AttentionLayer& /*layer*/) const { return ""; }

  void begin(const attention::Lengths& lengths) override { lengths_ = lengths; }
  void reset();
  // Of everything shown since the start, or reset(). As require_finite().
  std::map<Kind, LayerScores> mean_scores() const;

 protected:
  Side side() const { return side_; }
  // Adds to a layer's mean: sums (h), each over `count` things.
  void add(const attention::Shape& shape, const at::Tensor& sums, double count);
  // The first so many of a row are no padding.
  int64_t real_queries(Kind kind, int64_t row, int64_t queries) const;
  // Of a row's queries, or keys, those that stand on words.
  Words query_words(Kind kind, int64_t row, int64_t queries) const {
    return words_of(lengths_, queries_of_encoder(kind), row, queries);
  }
  Words key_words(Kind kind, int64_t row, int64_t keys) const {
    return words_of(lengths_, keys_of_encoder(kind), row, keys);
  }
  // Whether rows are sentences, and their lengths known on either side.
  bool sentences() const { return lengths_.encoder.defined(); }

 private:
  struct Mean {
    at::Tensor sums;  // (h) fp64
    double count = 0;
  };
  Side side_;
  attention::Lengths lengths_;
  std::map<Kind, std::map<int64_t, Mean>> means_;  // by kind and layer
};

// A measure of attention matrices: those that score heads give to the mixer, or else those that meet the values.
class AttentionMeasure : public Measure {
 public:
  using Measure::Measure;
  std::string none_because(const attention::AttentionLayer& layer) const override;
  at::Tensor heads(attention::HeadSide of, const attention::Shape& shape, const at::Tensor& x) override;
  void probabilities(const attention::Shape& shape, const at::Tensor& p) override;

 protected:
  virtual void look(const attention::Shape& shape, const at::Tensor& p) = 0;  // (B, h, Tq, Tk)
};

}  // namespace mh::analysis
