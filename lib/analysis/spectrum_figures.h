// The reported figures of spectra: of each head, of a layer (mean of its heads), of a model (mean of its layers). The
// equations are in spectrum.h.
#pragma once

#include <vector>

#include "analysis/spectrum_source.h"

namespace mh::analysis {

// The figures of one head, or means of several; NaN: undefined.
struct SpectrumFigures {
  double area = 0;
  double effective_rank = 0;
  double rank_share = 0;  // effective rank / n
  double stable_rank = 0;
  double entropy = 0;         // nats; attention matrices only
  double entropy_share = 0;   // entropy divided by its maximum
  std::vector<double> parts;  // c_k at k = 1, and at 10%, 20%, …, 90% of the curve
  std::vector<double> curve;  // c_k; empty for a mean of curves of different lengths
};

// Returns the figures of each head; a single element if the place has one matrix for all heads.
std::vector<SpectrumFigures> figures_of(const PlaceSpectra& place);
// Returns the means of `all`, which must not be empty.
SpectrumFigures mean_of(const std::vector<SpectrumFigures>& all);

// The 10th, 50th and 90th percentiles of the curves of a place, [head][point]. The source must have been started with
// `curves`.
struct CurvePercentiles {
  std::vector<std::vector<double>> p10, p50, p90;
};
CurvePercentiles percentiles_of(const PlaceSpectra& place);

// Returns the rows of an fp64 matrix (m, n) on the CPU.
std::vector<std::vector<double>> rows_of(const at::Tensor& x);

}  // namespace mh::analysis
