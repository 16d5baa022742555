// The numbers that mh-spectrum reports for each head, for a layer (mean over its heads) and for a model (mean over its
// layers). The equations are in spectrum.h.
#pragma once

#include <vector>

#include "analysis/spectrum_source.h"

namespace mh::analysis {

// The numbers reported for one head, or their means over several heads or layers; NaN: undefined.
struct SpectrumStatistics {
  double area = 0;
  double effective_rank = 0;
  double rank_share = 0;  // effective_rank / n
  double stable_rank = 0;
  double entropy = 0;                 // nats; attention matrices only
  double entropy_share = 0;           // mean of H / ln(number of visible keys)
  std::vector<double> sampled_curve;  // c_k at k = 1, and at 10%, 20%, …, 90% of the curve
  // c_k = Σ_{i ≤ k} σ_i / Σ σ_i for k = 1 … n, the cumulative fractions of the singular values; empty for a mean of
  // curves of different lengths.
  std::vector<double> curve;
};

// Returns the statistics of each head; a single element if `entry` has one matrix for all heads.
std::vector<SpectrumStatistics> statistics_of(const SpectraEntry& entry);
// Returns the means of `statistics`, which must not be empty.
SpectrumStatistics mean_of(const std::vector<SpectrumStatistics>& statistics);

// The 10th, 50th and 90th percentiles of the curves c_k of a layer or parameter, [head][k - 1]. The source must have
// been started with SourceRequest::needs_percentiles.
struct CurvePercentiles {
  std::vector<std::vector<double>> p10, p50, p90;
};
CurvePercentiles percentiles_of(const SpectraEntry& entry);

// Returns the rows of an fp64 matrix (m, n) on the CPU.
std::vector<std::vector<double>> rows_of(const at::Tensor& x);

}  // namespace mh::analysis
