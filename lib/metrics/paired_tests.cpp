#include "metrics/paired_tests.h"

#include <algorithm>
#include <numeric>

namespace mh::metrics {

namespace {

double mean_of(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

}  // namespace

double p_value(const std::vector<double>& statistics, double difference) {
  const auto num_above =
      std::count_if(statistics.begin(), statistics.end(), [&](double statistic) { return statistic > difference; });
  return static_cast<double>(num_above + 1) / static_cast<double>(statistics.size() + 1);
}

void set_interval(SystemComparison& comparison, std::vector<double> resampled_scores) {
  comparison.mean = mean_of(resampled_scores);
  std::sort(resampled_scores.begin(), resampled_scores.end());
  const size_t lower_index = resampled_scores.size() / 40;
  comparison.interval =
      0.5 * (resampled_scores[resampled_scores.size() - lower_index - 1] - resampled_scores[lower_index]);
}

double bootstrap_p_value(const std::vector<double>& baseline_scores, const std::vector<double>& system_scores,
                         double difference) {
  std::vector<double> statistics;
  statistics.reserve(system_scores.size());
  for (size_t i = 0; i < system_scores.size(); ++i)
    statistics.push_back(std::abs(system_scores[i] - baseline_scores[i]));
  const double mean = mean_of(statistics);
  for (double& statistic : statistics) statistic -= mean;
  return p_value(statistics, difference);
}

}  // namespace mh::metrics
