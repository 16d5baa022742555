// Computes the reported numbers of heads and layers from the statistics of their spectra.
#include "analysis/spectrum_figures.h"

#include <algorithm>
#include <limits>

#include "nn/aten.h"

namespace mh::analysis {

namespace {

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

std::vector<double> numbers(const at::Tensor& x) {  // x: fp64 on the CPU
  const at::Tensor y = x.contiguous();
  return {y.const_data_ptr<double>(), y.const_data_ptr<double>() + y.numel()};
}

}  // namespace

std::vector<SpectrumStatistics> statistics_of(const PlaceSpectra& place) {
  const Ranks means = place.spectra.means();
  const auto area = numbers(means.area), effective = numbers(means.effective), rank_share = numbers(means.share),
             stable = numbers(means.stable), first = numbers(means.first);
  const auto entropy = place.has_entropy ? numbers(place.entropy.entropy()) : std::vector<double>(area.size(), kNone);
  const auto share = place.has_entropy ? numbers(place.entropy.share()) : entropy;
  std::vector<SpectrumStatistics> heads;
  for (size_t h = 0; h < area.size(); ++h) {
    SpectrumStatistics f{area[h],    effective[h], rank_share[h], stable[h],
                         entropy[h], share[h],     {first[h]},    numbers(means.curve[static_cast<int64_t>(h)])};
    for (size_t tenth = 1; tenth < 10; ++tenth) f.parts.push_back(f.curve[(tenth * f.curve.size() + 9) / 10 - 1]);
    heads.push_back(f);
  }
  return heads;
}

SpectrumStatistics mean_of(const std::vector<SpectrumStatistics>& all) {
  SpectrumStatistics m;
  m.parts.resize(10);
  const bool equal_rows = std::all_of(
      all.begin(), all.end(), [&](const SpectrumStatistics& f) { return f.curve.size() == all[0].curve.size(); });
  if (equal_rows) m.curve.resize(all[0].curve.size());
  const auto add = [&](double& to, double x) { to += x / static_cast<double>(all.size()); };
  for (const SpectrumStatistics& f : all) {
    add(m.area, f.area), add(m.effective_rank, f.effective_rank), add(m.rank_share, f.rank_share);
    add(m.stable_rank, f.stable_rank), add(m.entropy, f.entropy), add(m.entropy_share, f.entropy_share);
    for (size_t i = 0; i < m.parts.size(); ++i) add(m.parts[i], f.parts[i]);
    for (size_t i = 0; i < m.curve.size(); ++i) add(m.curve[i], f.curve[i]);
  }
  return m;
}

CurvePercentiles percentiles_of(const PlaceSpectra& place) {
  return {rows_of(place.spectra.percentile(0.1)), rows_of(place.spectra.percentile(0.5)),
          rows_of(place.spectra.percentile(0.9))};
}

std::vector<std::vector<double>> rows_of(const at::Tensor& x) {
  std::vector<std::vector<double>> rows;
  for (int64_t i = 0; i < x.size(0); ++i) rows.push_back(numbers(x[i]));
  return rows;
}

}  // namespace mh::analysis
