// How important each head is, measured while it works: a measure is an observer that is shown forward passes and gives
// a score for each head of each layer. A higher score is a more important head, whatever the measure.
//
//   avg-l2          of head i: the mean over heads j ≠ i of |P_j - P_i|₂, P the attention matrix of a row (Tq·Tk
//   numbers),
//                   then the mean over rows: a head that looks where others look is redundant
//   avg-l2-outputs  the same of head outputs Z (Tq·dv numbers)
//   confidence      the mean over queries of the largest probability (Voita et al. 2019)
//
// Source: the rotation of heads by Landau et al. Their code takes in padding; here the real positions count, those that
// begin() names. Sums are in double precision.
#pragma once

#include <map>
#include <vector>

#include "analysis/heads.h"
#include "base/registry.h"

namespace mh::analysis {

using LayerScores = std::vector<std::vector<double>>;  // [layer][head]; none for a layer that was not shown

class Measure : public attention::Observer {
 public:
  void begin(const at::Tensor& lengths) override { lengths_ = lengths; }
  void reset();
  // Of everything shown since the start, or reset(). Error(failed) where a score is not finite.
  std::map<Kind, LayerScores> scores() const;

 protected:
  // Adds to a layer's mean: sums (h), each over `count` things.
  void add(const attention::Shape& shape, const at::Tensor& sums, double count);
  int64_t real_queries(int64_t row, int64_t queries) const;  // the first so many of the row are no padding

 private:
  struct Mean {
    at::Tensor sums;  // (h) fp64
    double count = 0;
  };
  at::Tensor lengths_;
  std::map<Kind, std::map<int64_t, Mean>> means_;  // by kind and layer
};

Registry<Measure>& measures();

}  // namespace mh::analysis
