// Head discrepancy (Azov & Landau): how much the heads of a layer differ. Of each sequence every head's outputs are one
// long vector Z_i (T·dv numbers, padding left out), and each pair of heads i ≠ j has
//
//   cosine     1 - ⟨Z_i, Z_j⟩ / (|Z_i| |Z_j|): 0 for heads that point the same way, 2 for opposite ones; 1 where one
//              of them is zero. (The published code has 1 + cosine, which is larger for heads that are more alike.)
//   euclidean  |Z_i - Z_j|₂
//
// A layer's discrepancy is the sum over all ordered pairs, the entrywise ℓ₁ norm of the matrix of pairs, then the mean
// over sequences. Of the heads' outputs before the combiner, and of what the combiner gives to the output projection,
// where alphas and the like have mixed them.
#pragma once

#include <map>
#include <vector>

#include "analysis/heads.h"

namespace mh::analysis {

class Discrepancy : public attention::Observer {
 public:
  void begin(const attention::Lengths& lengths) override;
  at::Tensor heads(attention::HeadSide side, const attention::Shape& shape, const at::Tensor& x) override;

  struct Sums {
    int64_t heads = 0;
    double cosine = 0, euclidean = 0;  // the mean over sequences of the sum over ordered pairs
    double pairs() const { return static_cast<double>(heads * (heads - 1)); }
  };
  struct Layer {
    Sums before, after;  // the combiner
  };
  // [layer]
  std::map<Kind, std::vector<Layer>> layers() const;
  int64_t sequences() const { return sequences_; }

 private:
  void look(const attention::Shape& shape, const at::Tensor& z, Sums Layer::*where);  // (B, h, Tq, dv)
  attention::Lengths lengths_;
  std::map<Kind, std::map<int64_t, Layer>> sums_;  // over sequences
  int64_t sequences_ = 0;
};

// The change from `before` to `now` in percent of `before`; NaN where that is 0.
double percent_change(double now, double before);

}  // namespace mh::analysis
