// Singular values of many matrices, and what they say of a matrix's rank. Of σ_1 ≥ … ≥ σ_n, n the smaller side,
//
//   c_k            = Σ_{i ≤ k} σ_i / Σ σ_i: the lower the curve, the higher the rank
//   area           = the mean of c_k over k: 1 where one value is not zero, (n + 1) / 2n where all are the same
//   effective rank = exp(-Σ p_i ln p_i), p_i = σ_i / Σ σ_i
//   rank share     = effective rank / n, for matrices of several sizes
//   stable rank    = Σ σ_i² / σ_1² = |A|_F² / σ_1²
//
// Curves are averaged, never matrices (Mixhead, figures 1 and 3). Those of matrices of several sizes, such as of
// sentences, are laid over each other by k / n: the straight lines from (0, 0) through each (k / n, c_k) are read at
// 1%, 2%, …, 100%. All other figures are means of the matrices' own.
#pragma once

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/random.h"

namespace mh::analysis {

// x (…, m, n), of any floating type -> (…, min(m, n)) fp64 on the CPU, descending; values only. They are the roots of
// the eigenvalues of x xᵀ or xᵀ x, in double precision: a value is off by up to some 3e-8 σ_1, as small as singular
// values of an fp32 matrix are exact at all, and one below 2^-24 σ_1 is given as 0. So c_k is good to 1e-6 where the
// values' sum is some tens of σ_1, and to 1e-5 in matrices of rank 1. One matrix a thread; where the ends of rows are
// zero, as a causal mask leaves them, they are left out. What lives on a GPU goes through values_by_tensors, and only
// the values are read. Error(failed) for numbers that are not finite.
at::Tensor singular_values(const at::Tensor& x);

// The same by operations on tensors, of any device, all matrices side by side: values stay where x is. x is finite.
at::Tensor values_by_tensors(const at::Tensor& x);

// Those of the products a_i b_i, a (…, m, r), b (…, r, n), of rank r at most: (…, min(m, r, n)), from r × r matrices.
at::Tensor singular_values_of_product(const at::Tensor& a, const at::Tensor& b);

// Of singular values (…, n): each fp64, NaN for a matrix of zeros.
struct Ranks {
  at::Tensor curve;      // (…, n), c_k
  at::Tensor first;      // (…), c_1
  at::Tensor area;       // (…)
  at::Tensor effective;  // (…)
  at::Tensor share;      // (…)
  at::Tensor stable;     // (…)
};
Ranks ranks_of(const at::Tensor& values);

// c_k (…, n), k = 1 … n -> (…, kGrid), at 1 / kGrid, 2 / kGrid, … of n.
constexpr int64_t kGrid = 100;
at::Tensor curve_by_share(const at::Tensor& curve);

// The spectra of one place, such as the heads of a layer, over many blocks: means of everything shown, and percentiles
// of its curves. Memory does not grow with the blocks: percentiles are exact up to kSample blocks, and of an even
// sample of so many beyond.
class SpectrumMeans {
 public:
  static constexpr int64_t kSample = 256;
  // `curves`: percentiles will be asked for. `by_share`: of several sizes.
  explicit SpectrumMeans(bool curves = false, bool by_share = false) : sampled_(curves), by_share_(by_share) {}
  // values (blocks, h, n), the same h each time, and the same n unless by share.
  void add(const at::Tensor& values);
  int64_t blocks() const { return blocks_; }
  bool by_share() const { return by_share_; }
  // The mean of n over blocks.
  double size() const { return sizes_ / static_cast<double>(std::max<int64_t>(1, blocks_)); }
  // Means over blocks, (h, n) and (h); by share, curves are (h, kGrid).
  Ranks means() const;
  // (h, n) or (h, kGrid): below it are `share` (0 … 1) of the blocks' c_k, between two of them by a straight line.
  at::Tensor percentile(double share) const;

 private:
  bool sampled_, by_share_;
  int64_t blocks_ = 0;
  double sizes_ = 0;  // summed over blocks
  Ranks sums_;
  std::vector<at::Tensor> sample_;  // curves (h, n) fp32
  RandomSequence random_{RandomStream(1, "spectrum")};
};

}  // namespace mh::analysis
