// Paired tests of scores compared with the exact distributions of small corpora, and with known p-values.
#include "metrics/paired_tests.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <string>

#include "fixtures/within.h"
#include "metrics/bleu.h"
#include "metrics/chrf.h"

using namespace mh;
using namespace mh::metrics;

namespace {

// Statistics of a sentence whose corpus score is the mean of its values.
struct ValueSum {
  double value = 0;
  int64_t num_sentences = 0;
  ValueSum& operator+=(const ValueSum& other) {
    value += other.value;
    num_sentences += other.num_sentences;
    return *this;
  }
};
double mean_score(const ValueSum& sum) { return sum.value / static_cast<double>(sum.num_sentences); }

std::vector<ValueSum> sentences_of(const std::vector<double>& values) {
  std::vector<ValueSum> sentences;
  for (double value : values) sentences.push_back({value, 1});
  return sentences;
}

double mean_of(const std::vector<double>& values) {
  double sum = 0;
  for (double value : values) sum += value;
  return sum / static_cast<double>(values.size());
}

// Returns the standard deviation of equally probable values.
double deviation_of(const std::vector<double>& values) {
  const double mean = mean_of(values);
  double sum = 0;
  for (double value : values) sum += (value - mean) * (value - mean);
  return std::sqrt(sum / static_cast<double>(values.size()));
}

// Returns the fraction of `values` above `bound`.
double fraction_above(const std::vector<double>& values, double bound) {
  return static_cast<double>(std::count_if(values.begin(), values.end(), [&](double x) { return x > bound; })) /
         static_cast<double>(values.size());
}

// The scores of baseline and system in every possible draw of a test.
struct AllDraws {
  std::vector<double> baseline_scores, system_scores;
  std::vector<double> distances() const {
    std::vector<double> result;
    for (size_t i = 0; i < baseline_scores.size(); ++i)
      result.push_back(std::abs(baseline_scores[i] - system_scores[i]));
    return result;
  }
};

// Returns the mean scores of all n^n resamples of n sentences.
AllDraws all_resamples(const std::vector<double>& baseline, const std::vector<double>& system) {
  const size_t n = baseline.size();
  size_t num_resamples = 1;
  for (size_t k = 0; k < n; ++k) num_resamples *= n;
  AllDraws draws;
  for (size_t number = 0; number < num_resamples; ++number) {
    double baseline_sum = 0, system_sum = 0;
    size_t digits = number;
    for (size_t k = 0; k < n; ++k, digits /= n) baseline_sum += baseline[digits % n], system_sum += system[digits % n];
    draws.baseline_scores.push_back(baseline_sum / static_cast<double>(n));
    draws.system_scores.push_back(system_sum / static_cast<double>(n));
  }
  return draws;
}

// Returns the mean scores of all 2^n ways to swap the outputs of n sentences.
AllDraws all_swaps(const std::vector<double>& baseline, const std::vector<double>& system) {
  const size_t n = baseline.size();
  AllDraws draws;
  for (size_t mask = 0; mask < size_t{1} << n; ++mask) {
    double first_sum = 0, second_sum = 0;
    for (size_t k = 0; k < n; ++k) {
      const bool is_swapped = (mask >> k & 1) != 0;
      first_sum += is_swapped ? system[k] : baseline[k];
      second_sum += is_swapped ? baseline[k] : system[k];
    }
    draws.baseline_scores.push_back(first_sum / static_cast<double>(n));
    draws.system_scores.push_back(second_sum / static_cast<double>(n));
  }
  return draws;
}

// Matches a p-value from `draws` draws whose limit for many draws is `p`: at most six standard deviations of the number
// of draws, and the draw that (1 + …) / (1 + …) adds.
Approx near_p(double p, int64_t draws) {
  const auto n = static_cast<double>(draws);
  return rounding::within(p, 6 * std::sqrt(std::max(p * (1 - p), 1 / n) / n) + 1 / n);
}

// Values whose difference of means is 1. A statistic of the bootstrap, a multiple of 1/5 minus the mean
// distance 1.5024, differs from 1 by at least 0.0976, 11 standard deviations of the mean distance over 20,000 draws, so
// that the limit of the p-value is the fraction of the exact distribution. The distance of a swap is 1 without a
// rounding error or differs from 1 by at least 0.4.
const std::vector<double> kBaseline{0, 4, 1, 3, 2}, kSystem{8, 3, 0, 1, 3};

BleuStatistics bleu_of(Bleu& bleu, std::string_view hypothesis, std::string_view reference) {
  return bleu.statistics(hypothesis, std::vector<std::string_view>{reference});
}

double corpus_bleu(const BleuStatistics& s) { return bleu_score(s, {}, BleuScope::corpus).score; }

}  // namespace

TEST_CASE("p-values, means and intervals of paired tests approach the exact distributions of all draws", "[metrics]") {
  const PairedTestOptions options{20000, 3};
  const auto comparisons =
      compare_systems<ValueSum>({sentences_of(kBaseline), sentences_of(kSystem)}, mean_score, options);
  REQUIRE(comparisons.size() == 2);
  const double difference = mean_of(kSystem) - mean_of(kBaseline);
  CHECK(comparisons[1].difference == rounding::fp64(difference, 12));
  CHECK(comparisons[0].difference == 0);
  CHECK(std::isnan(comparisons[0].bootstrap_p));
  CHECK(std::isnan(comparisons[0].randomisation_p));
  const AllDraws resamples = all_resamples(kBaseline, kSystem);
  std::vector<double> shifted_distances = resamples.distances();
  const double mean_distance = mean_of(shifted_distances);
  for (double& distance : shifted_distances) distance -= mean_distance;
  CHECK(comparisons[1].bootstrap_p == near_p(fraction_above(shifted_distances, difference), options.draws));
  // Of the 32 ways to swap, 24 have a distance above the difference, and 6 the same distance, which does not count.
  CHECK(fraction_above(all_swaps(kBaseline, kSystem).distances(), difference) == 0.75);
  CHECK(comparisons[1].randomisation_p == near_p(0.75, options.draws));
  for (size_t i = 0; i < 2; ++i) {
    std::vector<double> scores = i == 0 ? resamples.baseline_scores : resamples.system_scores;
    std::sort(scores.begin(), scores.end());
    const size_t lower_index = scores.size() / 40;
    const double interval = 0.5 * (scores[scores.size() - lower_index - 1] - scores[lower_index]);
    CHECK(comparisons[i].score == rounding::fp64(mean_of(i == 0 ? kBaseline : kSystem), 12));
    CHECK(comparisons[i].mean ==
          rounding::within(comparisons[i].score,
                           6 * deviation_of(scores) / std::sqrt(static_cast<double>(options.draws))));
    // The scores of resamples are multiples of 1/5. 20,000 draws determine both ends of the interval of the baseline.
    // Of the scores of the system, a fraction of 0.0259 is at most 0.8, so the lower end may also be the next
    // multiple, 1.
    CHECK(comparisons[i].interval == rounding::within(interval, i == 0 ? 1e-12 : 0.1 + 1e-12));
  }
}

TEST_CASE("a p-value is (statistics above the difference + 1) / (draws + 1)", "[metrics]") {
  CHECK(p_value({1, 2, 3, 2}, 2) == 0.4);
  CHECK(p_value({1, 2, 3, 2}, 3) == 0.2);
  CHECK(p_value({1, 2, 3, 2}, 0) == 1);
  // Distances 1, 0, 3, 0 with the mean 1: only 3 - 1 = 2 is above 1.5.
  CHECK(bootstrap_p_value({5, 5, 5, 5}, {6, 5, 2, 5}, 1.5) == 0.4);
}

TEST_CASE("an interval is half the distance between the scores at 1/40 of the draws from both ends", "[metrics]") {
  SystemComparison comparison;
  std::vector<double> scores;
  for (int i = 99; i >= 0; --i) scores.push_back(i);
  set_interval(comparison, scores);
  CHECK(comparison.mean == 49.5);
  CHECK(comparison.interval == 0.5 * (97 - 2));
  set_interval(comparison, {7});
  CHECK(comparison.mean == 7);
  CHECK(comparison.interval == 0);
}

TEST_CASE("a system that equals the baseline has the difference 0 and the smallest p-value", "[metrics]") {
  // As in sacrebleu, no draw has a statistic above the difference 0.
  const auto comparisons =
      compare_systems<ValueSum>({sentences_of(kBaseline), sentences_of(kBaseline)}, mean_score, {99, 1});
  CHECK(comparisons[1].difference == 0);
  CHECK(comparisons[1].bootstrap_p == 0.01);
  CHECK(comparisons[1].randomisation_p == 0.01);
  CHECK(comparisons[1].mean == comparisons[0].mean);
  CHECK(comparisons[1].interval == comparisons[0].interval);
}

TEST_CASE("paired tests depend on the seed, and not on the number of systems", "[metrics]") {
  const std::vector<ValueSum> baseline = sentences_of(kBaseline), system = sentences_of(kSystem),
                              other = sentences_of({9, 0, 0, 0, 0});
  const auto two = compare_systems<ValueSum>({baseline, system}, mean_score, {500, 1});
  const auto three = compare_systems<ValueSum>({baseline, other, system}, mean_score, {500, 1});
  CHECK(three[2].bootstrap_p == two[1].bootstrap_p);
  CHECK(three[2].randomisation_p == two[1].randomisation_p);
  CHECK(three[2].mean == two[1].mean);
  CHECK(three[0].interval == two[0].interval);
  const auto other_seed = compare_systems<ValueSum>({baseline, system}, mean_score, {500, 2});
  CHECK(other_seed[1].mean != two[1].mean);
  CHECK(other_seed[1].score == two[1].score);
}

TEST_CASE("compared systems have the BLEU and the chrF of their corpora", "[metrics]") {
  const std::vector<std::string> references{"the cat is on the mat", "it rains all day long", "a b c d e"},
      first{"the cat sat on the mat", "it rains all day", "a b c d e"},
      second{"a cat is on the mat", "it rains the whole day long", "a b c d"};
  Bleu bleu({});
  Chrf chrf({});
  std::vector<std::vector<BleuStatistics>> bleu_statistics(2);
  std::vector<std::vector<ChrfStatistics>> chrf_statistics(2);
  std::vector<BleuStatistics> bleu_sums(2);
  std::vector<ChrfStatistics> chrf_sums(2);
  for (size_t i = 0; i < references.size(); ++i)
    for (size_t system = 0; system < 2; ++system) {
      const std::string& hypothesis = (system == 0 ? first : second)[i];
      bleu_statistics[system].push_back(bleu_of(bleu, hypothesis, references[i]));
      chrf_statistics[system].push_back(chrf.statistics(hypothesis, std::vector<std::string_view>{references[i]}));
      bleu_sums[system] += bleu_statistics[system].back();
      chrf_sums[system] += chrf_statistics[system].back();
    }
  const auto bleu_comparisons = compare_systems<BleuStatistics>(bleu_statistics, corpus_bleu, {50, 1});
  const auto chrf_comparisons = compare_systems<ChrfStatistics>(chrf_statistics, chrf_score, {50, 1});
  for (size_t system = 0; system < 2; ++system) {
    CHECK(bleu_comparisons[system].score == corpus_bleu(bleu_sums[system]));
    CHECK(chrf_comparisons[system].score == chrf_score(chrf_sums[system]));
    CHECK(bleu_comparisons[system].score > 0);
  }
}
