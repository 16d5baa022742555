// Head discrepancy (Azov & Landau): how much the heads of a layer differ. For each sequence, the outputs of head i form
// one vector Z_i (T·dv numbers, without padding). Each pair of heads i ≠ j has the distances
//
//   cosine     1 - ⟨Z_i, Z_j⟩ / (|Z_i| |Z_j|): 0 for equal directions, 2 for opposite ones, 1 if Z_i or Z_j is zero.
//              (The published code has 1 + cosine, which is larger for heads that are more alike.)
//   euclidean  |Z_i - Z_j|₂
//
// The discrepancy of a layer is the sum of the distances of all ordered pairs (the entrywise ℓ₁ norm of the matrix of
// distances), averaged over sequences. The discrepancy is measured in two places: in the head outputs before the
// combiner, and in the input of the output projection, in which combiners such as alphas have mixed the heads.
#pragma once

#include <map>
#include <vector>

#include "analysis/additive_observer.h"
#include "analysis/heads.h"

namespace mh::analysis {

// Accumulates the head discrepancy of every layer over the observed forward passes.
class DiscrepancyObserver : public AdditiveObserver {
 public:
  void begin_batch(const attention::Lengths& lengths) override;
  at::Tensor intercept_heads(attention::HeadSide side, const attention::LayerSpec& layer_spec,
                             const at::Tensor& x) override;

  struct Sums {
    int64_t num_heads = 0;  // hv before the combiner, ho after the combiner
    // Distances, summed over ordered pairs of heads and over sequences; layers() returns the means over sequences.
    double cosine = 0, euclidean = 0;
    // Returns the number of ordered pairs of heads.
    double num_pairs() const { return static_cast<double>(num_heads * (num_heads - 1)); }
  };
  struct Layer {
    Sums before_combiner, after_combiner;
  };
  // Returns the discrepancies of the layers of each kind of attention, indexed by layer; all zeros for a layer that was
  // not observed.
  std::map<AttentionKind, std::vector<Layer>> layers() const;
  int64_t num_sequences() const { return num_sequences_; }

 private:
  // Contributes the distances between the heads of z (B, hv or ho, Tq, dv) to the sums of the layer before or after the
  // combiner.
  void add_distances(const attention::LayerSpec& layer_spec, const at::Tensor& z, bool is_after_combiner);
  void add_contribution(const std::string& label, const Tensors& tensors) override;
  attention::Lengths lengths_;
  std::map<AttentionKind, std::map<int64_t, Layer>> sums_;  // by kind and layer, not yet averaged over sequences
  int64_t num_sequences_ = 0;
};

}  // namespace mh::analysis
