// Singular values of many matrices, and measures of rank that follow from them. For σ_1 ≥ … ≥ σ_n, with n the smaller
// dimension of the matrix:
//
//   c_k            = Σ_{i ≤ k} σ_i / Σ σ_i: the lower the curve, the higher the rank
//   area           = mean of c_k over k: 1 if a single σ_i is nonzero, (n + 1) / 2n if all are equal
//   effective rank = exp(-Σ p_i ln p_i), p_i = σ_i / Σ σ_i
//   rank share     = effective rank / n, comparable across matrix sizes
//   stable rank    = Σ σ_i² / σ_1² = |A|_F² / σ_1²
//
// Averages are taken of curves and measures, never of matrices (Mixhead, figures 1 and 3). Curves of matrices of
// different sizes, such as attention matrices of sentences, are aligned by k / n: the piecewise linear curve through
// (0, 0) and all points (k / n, c_k) is sampled at 1%, 2%, …, 100%.
#pragma once

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/random.h"

namespace mh::analysis {

// Returns the singular values of x (…, m, n), of any floating-point type, as a tensor (…, min(m, n)), descending, fp64
// on the CPU. The singular values are the square roots of the eigenvalues of x xᵀ or xᵀ x, computed in fp64. Their
// error is at most about 3e-8 σ_1, of the order of the rounding errors of fp32 entries; values below 2^-24 σ_1 are set
// to 0. So c_k is accurate to 1e-6 if Σ σ_i is at least several tens of times σ_1, and to 1e-5 for matrices of rank 1.
// On a CPU each thread takes one matrix at a time and skips the trailing zeros that a causal mask leaves in rows; on a
// GPU batched_singular_values() runs, and only the values are copied to the host. Throws Error(failed) if x is not
// finite, or if the eigenvalues do not converge.
at::Tensor singular_values(const at::Tensor& x);

// Returns the same values as singular_values(), up to rounding, computed by batched tensor operations; the result stays
// on the device of x. x must be finite.
at::Tensor batched_singular_values(const at::Tensor& x);

// Returns the largest min(m, r, n) singular values of the products a b for a (…, m, r) and b (…, r, n); the others are
// 0. Uses the triangular factors of a and bᵀ, so that the decomposed matrices are at most r × r.
at::Tensor singular_values_of_product(const at::Tensor& a, const at::Tensor& b);

// The measures of rank of matrices with singular values (…, n), fp64; NaN for a matrix of zeros.
struct RankMeasures {
  at::Tensor curve;           // (…, n), c_k = Σ_{i ≤ k} σ_i / Σ σ_i
  at::Tensor first_fraction;  // (…), c_1
  at::Tensor area;            // (…), mean of c_k
  at::Tensor effective_rank;  // (…)
  at::Tensor rank_share;      // (…), effective rank / n
  at::Tensor stable_rank;     // (…)
};
// Returns the measures of singular values (…, n), descending.
RankMeasures rank_measures_of(const at::Tensor& values);

constexpr int64_t kGridPoints = 100;
// Resamples curves c_k (…, n), k = 1 … n, to (…, kGridPoints), at the fractions 1 / kGridPoints, 2 / kGridPoints, …, 1
// of n.
at::Tensor resample_curve(const at::Tensor& curve);

// Statistics of the spectra of a layer's heads, or of a parameter, over many text blocks: means of the measures of
// rank, and percentiles of the curves. Memory use is independent of the number of blocks: percentiles are exact for up
// to kSampleSize blocks; for more blocks, they are estimated from a uniform sample of kSampleSize blocks.
class SpectrumMeans {
 public:
  static constexpr int64_t kSampleSize = 256;
  // `samples_curves`: whether curve_quantile() will be called. `has_varying_size`: whether the matrices differ in size,
  // so that curves are resampled to kGridPoints points.
  explicit SpectrumMeans(bool samples_curves = false, bool has_varying_size = false)
      : samples_curves_(samples_curves), has_varying_size_(has_varying_size) {}
  // Adds singular values (blocks, h, n). h is the number of heads, or 1 for a matrix without heads, and must be the
  // same in all calls; n must be the same in all calls unless has_varying_size() is true.
  void add(const at::Tensor& values);
  int64_t num_blocks() const { return num_blocks_; }
  bool has_varying_size() const { return has_varying_size_; }
  // Returns the mean of n over blocks.
  double mean_size() const { return size_sum_ / static_cast<double>(std::max<int64_t>(1, num_blocks_)); }
  // Returns the means over blocks: curves (h, n), or (h, kGridPoints) if has_varying_size(); all other measures (h).
  RankMeasures means() const;
  // Returns the `quantile` quantile (0 … 1) of c_k over blocks, (h, n) or (h, kGridPoints), linearly interpolated.
  at::Tensor curve_quantile(double quantile) const;

 private:
  bool samples_curves_, has_varying_size_;
  int64_t num_blocks_ = 0;
  double size_sum_ = 0;  // sum of n over blocks
  RankMeasures sums_;
  std::vector<at::Tensor> sample_;  // curves (h, n) or (h, kGridPoints), fp32
  RandomSequence random_{RandomStream(1, "spectrum")};
};

}  // namespace mh::analysis
