// The figures that a spectrum is reported by: of each head, of a layer as the mean of its heads, of a model as the mean
// of its layers (spectrum.h has the equations).
#pragma once

#include <vector>

#include "analysis/spectrum_source.h"

namespace mh::analysis {

// Of one head, or the mean of several. NaN: not defined.
struct SpectrumFigures {
  double area = 0;
  double effective_rank = 0;
  double rank_share = 0;  // effective rank / n
  double stable_rank = 0;
  double entropy = 0;         // nats, of attention matrices
  double entropy_share = 0;   // of the largest entropy
  std::vector<double> parts;  // c_k at k = 1, and at 10%, 20%, …, 90% of the curve
  std::vector<double> curve;  // c_k; empty for the mean of curves of several lengths
};

// By head; of a place with one matrix in all, one.
std::vector<SpectrumFigures> figures_of(const PlaceSpectra& place);
// `all`: at least one.
SpectrumFigures mean_of(const std::vector<SpectrumFigures>& all);

// Percentiles of the curves of a place over its matrices, [head][point]. The source was started with `curves`.
struct CurvePercentiles {
  std::vector<std::vector<double>> p10, p50, p90;
};
CurvePercentiles percentiles_of(const PlaceSpectra& place);

// Rows of an fp64 matrix (m, n) on the CPU.
std::vector<std::vector<double>> rows_of(const at::Tensor& x);

}  // namespace mh::analysis
