// Computes the numbers that mh-spectrum reports for heads and layers from the statistics of their spectra.
#include "analysis/spectrum_statistics.h"

#include <algorithm>
#include <limits>

#include "ceil_div.h"
#include "nn/aten.h"

namespace mh::analysis {

namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

std::vector<double> to_vector(const at::Tensor& x) {  // x: fp64 on the CPU
  const at::Tensor y = x.contiguous();
  return {y.const_data_ptr<double>(), y.const_data_ptr<double>() + y.numel()};
}

}  // namespace

std::vector<SpectrumStatistics> statistics_of(const SpectraEntry& entry) {
  const RankMeasures means = entry.spectra.means();
  const auto area = to_vector(means.area), effective_rank = to_vector(means.effective_rank),
             rank_share = to_vector(means.rank_share), stable_rank = to_vector(means.stable_rank),
             first_fraction = to_vector(means.first_fraction);
  const auto entropy = entry.has_entropy ? to_vector(entry.entropy.entropy()) : std::vector<double>(area.size(), kNaN);
  const auto normalised_entropy = entry.has_entropy ? to_vector(entry.entropy.normalised_entropy()) : entropy;
  std::vector<SpectrumStatistics> head_statistics;
  for (size_t head = 0; head < area.size(); ++head) {
    SpectrumStatistics s{area[head],
                         effective_rank[head],
                         rank_share[head],
                         stable_rank[head],
                         entropy[head],
                         normalised_entropy[head],
                         {first_fraction[head]},
                         to_vector(means.curve[static_cast<int64_t>(head)])};
    for (size_t tenth = 1; tenth < 10; ++tenth)
      s.sampled_curve.push_back(s.curve[ceil_div(tenth * s.curve.size(), 10) - 1]);
    head_statistics.push_back(s);
  }
  return head_statistics;
}

SpectrumStatistics mean_of(const std::vector<SpectrumStatistics>& statistics) {
  SpectrumStatistics mean;
  mean.sampled_curve.resize(10);
  const bool equal_lengths = std::all_of(statistics.begin(), statistics.end(), [&](const SpectrumStatistics& s) {
    return s.curve.size() == statistics[0].curve.size();
  });
  if (equal_lengths) mean.curve.resize(statistics[0].curve.size());
  const auto add = [&](double& sum, double x) { sum += x / static_cast<double>(statistics.size()); };
  for (const SpectrumStatistics& s : statistics) {
    add(mean.area, s.area), add(mean.effective_rank, s.effective_rank), add(mean.rank_share, s.rank_share);
    add(mean.stable_rank, s.stable_rank), add(mean.entropy, s.entropy), add(mean.entropy_share, s.entropy_share);
    for (size_t i = 0; i < mean.sampled_curve.size(); ++i) add(mean.sampled_curve[i], s.sampled_curve[i]);
    for (size_t i = 0; i < mean.curve.size(); ++i) add(mean.curve[i], s.curve[i]);
  }
  return mean;
}

CurvePercentiles percentiles_of(const SpectraEntry& entry) {
  return {rows_of(entry.spectra.curve_quantile(0.1)), rows_of(entry.spectra.curve_quantile(0.5)),
          rows_of(entry.spectra.curve_quantile(0.9))};
}

std::vector<std::vector<double>> rows_of(const at::Tensor& x) {
  std::vector<std::vector<double>> rows;
  for (int64_t i = 0; i < x.size(0); ++i) rows.push_back(to_vector(x[i]));
  return rows;
}

}  // namespace mh::analysis
