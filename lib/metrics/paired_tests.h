// Paired tests of the difference between the scores of several systems on the same sentences, with the definitions of
// sacrebleu 2.6.0 (Koehn 2004; Riezler and Maxwell 2005). The first system is the baseline. Each of N draws uses the
// same sentences and the same swaps for all systems. With d = |score of the system - score of the baseline|:
//
//   paired bootstrap resampling          a draw takes as many sentences as the corpus has, with replacement;
//     x_i = |score_i of the system - score_i of the baseline|,   p = (1 + number of i with x_i - mean(x) > d) / (N + 1)
//   paired approximate randomisation     a draw swaps the outputs of system and baseline in each sentence with
//     probability 1/2; x_i is as above,                          p = (1 + number of i with x_i > d) / (N + 1)
//
// Mean and 95% interval of a score are the mean of its N resampled scores, and half the distance between their sorted
// values at the indices N / 40 and N - N / 40 - 1.
#pragma once

#include <cmath>
#include <cstdint>
#include <functional>
#include <vector>

#include "base/fields.h"
#include "base/random.h"

namespace mh::metrics {

struct PairedTestOptions {
  int64_t draws = 10000;
  int64_t seed = 12345;
  void describe(Fields& f) {
    f.field("draws", draws, "number of draws of each paired test", between(1, 1 << 20));
    f.field("seed", seed, "random seed of the paired tests", at_least(0));
  }
};

struct SystemComparison {
  double score = 0;              // of the whole corpus
  double mean = 0;               // mean of the resampled scores
  double interval = 0;           // half width of the 95% interval of the resampled scores
  double difference = 0;         // score of the system minus score of the baseline
  double bootstrap_p = NAN;      // p-value of paired bootstrap resampling; NaN: the baseline
  double randomisation_p = NAN;  // p-value of paired approximate randomisation; NaN: the baseline
};

// Returns (1 + number of `statistics` above `difference`) / (1 + number of statistics).
double p_value(const std::vector<double>& statistics, double difference);

// Sets the mean and the interval of a comparison from the resampled scores of a system.
void set_interval(SystemComparison& comparison, std::vector<double> resampled_scores);

// Returns the p-value of paired bootstrap resampling from the resampled scores of both systems.
double bootstrap_p_value(const std::vector<double>& baseline_scores, const std::vector<double>& system_scores,
                         double difference);

// Compares systems by a score that is a function of statistics that sum over sentences (BleuStatistics,
// ChrfStatistics). `systems`: for each system the statistics of each sentence, of which there is at least one; all
// systems have the same sentences. `score`: score of a corpus from the sum of the statistics of its sentences. Returns
// the comparison of each system with the first.
template <class Statistics>
std::vector<SystemComparison> compare_systems(const std::vector<std::vector<Statistics>>& systems,
                                              const std::function<double(const Statistics&)>& score,
                                              const PairedTestOptions& options) {
  const size_t num_systems = systems.size(), num_sentences = systems.front().size();
  const auto num_draws = static_cast<size_t>(options.draws);
  const RandomStream resample_stream(static_cast<uint64_t>(options.seed), "paired bootstrap resampling"),
      swap_stream(static_cast<uint64_t>(options.seed), "paired approximate randomisation");
  std::vector<std::vector<double>> resampled_scores(num_systems), swapped_differences(num_systems);
  for (size_t draw = 0; draw < num_draws; ++draw) {
    RandomSequence resample(resample_stream, static_cast<uint32_t>(draw));
    std::vector<Statistics> sums(num_systems);
    for (size_t k = 0; k < num_sentences; ++k) {
      const size_t sentence = resample.uniform_below(num_sentences);
      for (size_t system = 0; system < num_systems; ++system) sums[system] += systems[system][sentence];
    }
    for (size_t system = 0; system < num_systems; ++system) resampled_scores[system].push_back(score(sums[system]));

    RandomSequence swap(swap_stream, static_cast<uint32_t>(draw));
    // For each system: sums over the outputs assigned to the baseline, and over those assigned to the system.
    std::vector<Statistics> first_sums(num_systems), second_sums(num_systems);
    uint32_t bits = 0;
    for (size_t sentence = 0; sentence < num_sentences; ++sentence, bits >>= 1) {
      if (sentence % 32 == 0) bits = swap.next_u32();
      const bool is_swapped = (bits & 1) != 0;
      for (size_t system = 1; system < num_systems; ++system) {
        const Statistics &baseline_output = systems.front()[sentence], &system_output = systems[system][sentence];
        first_sums[system] += is_swapped ? system_output : baseline_output;
        second_sums[system] += is_swapped ? baseline_output : system_output;
      }
    }
    for (size_t system = 1; system < num_systems; ++system)
      swapped_differences[system].push_back(std::abs(score(first_sums[system]) - score(second_sums[system])));
  }
  std::vector<SystemComparison> comparisons(num_systems);
  for (size_t system = 0; system < num_systems; ++system) {
    SystemComparison& comparison = comparisons[system];
    Statistics corpus;
    for (const Statistics& sentence : systems[system]) corpus += sentence;
    comparison.score = score(corpus);
    set_interval(comparison, resampled_scores[system]);
    if (system == 0) continue;
    comparison.difference = comparison.score - comparisons.front().score;
    const double distance = std::abs(comparison.difference);
    comparison.bootstrap_p = bootstrap_p_value(resampled_scores.front(), resampled_scores[system], distance);
    comparison.randomisation_p = p_value(swapped_differences[system], distance);
  }
  return comparisons;
}

}  // namespace mh::metrics
