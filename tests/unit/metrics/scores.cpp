// Tests of the scores of predicted classes, numbers and answers: values computed by hand, naive implementations of the
// definitions, and undefined scores.
#include "metrics/scores.h"

#include <rapidcheck.h>

#include <catch2/catch.hpp>
#include <cmath>
#include <limits>

#include "base/text.h"
#include "fixtures/status.h"
#include "fixtures/within.h"

using namespace mh;
using namespace mh::metrics;

namespace {

using Classes = std::vector<int32_t>;
using Numbers = std::vector<double>;
using Words = std::vector<std::string>;

// Returns the phi coefficient from the contingency table of two classes.
double phi(const Classes& truth, const Classes& predicted) {
  double tp = 0, tn = 0, fp = 0, fn = 0;
  for (size_t i = 0; i < truth.size(); ++i)
    ++(truth[i] == 1 ? predicted[i] == 1 ? tp : fn : predicted[i] == 1 ? fp : tn);
  const double margin_product = (tp + fp) * (tp + fn) * (tn + fp) * (tn + fn);
  return margin_product == 0 ? 0 : (tp * tn - fp * fn) / std::sqrt(margin_product);
}

// Returns Pearson's correlation from sums over all pairs of elements, without means. Neither x nor y may be constant.
double pearson_of_pairs(const Numbers& x, const Numbers& y) {
  double xy = 0, xx = 0, yy = 0;
  for (size_t i = 0; i < x.size(); ++i)
    for (size_t j = 0; j < i; ++j) {
      xy += (x[i] - x[j]) * (y[i] - y[j]);
      xx += (x[i] - x[j]) * (x[i] - x[j]);
      yy += (y[i] - y[j]) * (y[i] - y[j]);
    }
  return xy / std::sqrt(xx * yy);
}

// Returns the average rank of each number: the number of smaller numbers, plus half the number of equal numbers
// (including the number itself), plus 1/2.
Numbers naive_ranks(const Numbers& numbers) {
  Numbers ranks;
  for (double a : numbers) {
    double rank = 0.5;
    for (double b : numbers) rank += b < a ? 1 : b == a ? 0.5 : 0;
    ranks.push_back(rank);
  }
  return ranks;
}

bool is_constant(const Numbers& numbers) {
  return numbers == Numbers(numbers.size(), numbers.empty() ? 0 : numbers[0]);
}

// Returns whether a and b, of magnitude at most 1, are equal up to a few roundings in fp64.
bool is_near(double a, double b) { return std::abs(a - b) <= rounding::fp64_bound(6, 1); }

AnswerScore score_of(const std::string& answer, const Words& truth) { return answer_score(answer, truth); }

constexpr double kInfinity = std::numeric_limits<double>::infinity();

}  // namespace

TEST_CASE("accuracy, F1 and Matthews correlation equal values computed by hand", "[metrics]") {
  const Classes truth{1, 1, 1, 0, 0}, predicted{1, 1, 0, 1, 0};
  CHECK(accuracy(truth, predicted) == 0.6);
  CHECK(f1(truth, predicted) == 2.0 / 3);
  CHECK(is_near(matthews(truth, predicted), 1.0 / 6));
  CHECK(matthews(truth, truth) == 1);
  CHECK(is_near(matthews(Classes{0, 1}, Classes{1, 0}), -1));
  CHECK(is_near(matthews(Classes{0, 1, 2}, Classes{0, 1, 1}), std::sqrt(3. / 8)));
  // F1 counts every predicted class other than 1 as negative.
  CHECK(f1(Classes{1, 1, 0}, Classes{1, -1, 2}) == 2.0 / 3);
  CHECK(accuracy(Classes{-1, 0}, Classes{-1, -1}) == 0.5);
  // The true or the predicted classes are all equal.
  CHECK(f1(Classes{0, 0}, Classes{0, 0}) == 0);
  CHECK(matthews(Classes{1, 1}, Classes{1, 1}) == 0);
  CHECK(matthews(Classes{0, 1}, Classes{1, 1}) == 0);
  for (auto* score : {accuracy, f1, matthews}) {
    CHECK(std::isnan(score({}, {})));
    CHECK(status_of([&] { score(truth, {}); }) == 3);
  }
}

TEST_CASE("accuracy, F1 and Matthews correlation of two classes follow from their contingency table", "[metrics]") {
  CHECK(rc::check([] {
    const auto rows = *rc::gen::nonEmpty(rc::gen::container<std::vector<std::pair<int32_t, int32_t>>>(
        rc::gen::pair(rc::gen::inRange(0, 2), rc::gen::inRange(0, 2))));
    Classes truth, predicted;
    for (const auto& [t, p] : rows) truth.push_back(t), predicted.push_back(p);
    RC_ASSERT(is_near(matthews(truth, predicted), phi(truth, predicted)));
    RC_ASSERT(matthews(truth, predicted) == matthews(predicted, truth));
    double num_correct = 0, hits = 0, ones = 0;
    for (size_t i = 0; i < truth.size(); ++i) {
      num_correct += truth[i] == predicted[i];
      hits += truth[i] * predicted[i];
      ones += truth[i] + predicted[i];
    }
    RC_ASSERT(accuracy(truth, predicted) == num_correct / static_cast<double>(truth.size()));
    RC_ASSERT(f1(truth, predicted) == (ones == 0 ? 0 : 2 * hits / ones));
  }));
}

TEST_CASE("Pearson and Spearman equal sums over pairs of elements, and equal numbers share their mean rank",
          "[metrics]") {
  CHECK(rc::check([] {
    const auto number = rc::gen::map(rc::gen::inRange(-8, 9), [](int v) { return v * 0.25; });
    const auto rows = *rc::gen::container<std::vector<std::pair<double, double>>>(rc::gen::pair(number, number));
    Numbers x, y;
    for (const auto& [a, b] : rows) x.push_back(a), y.push_back(b);
    RC_ASSERT(average_ranks(x) == naive_ranks(x));
    const bool is_undefined = is_constant(x) || is_constant(y);
    RC_ASSERT(std::isnan(pearson(x, y)) == is_undefined);
    RC_ASSERT(std::isnan(spearman(x, y)) == is_undefined);
    if (is_undefined) return;
    // Rounding errors of sums over elements in fp64. All numbers are multiples of 1/4 of magnitude at most 2, so that
    // the sums over pairs are exact. The mean is rounded by up to 2 kFp64. Relative to the largest deviation from the
    // mean, which is at least 1/8, this is up to 16 kFp64. The mean of ranks is exact.
    const auto operations = static_cast<int64_t>(x.size()) + 6;
    RC_ASSERT(std::abs(pearson(x, y) - pearson_of_pairs(x, y)) <= rounding::fp64_bound(operations, 16));
    RC_ASSERT(std::abs(spearman(x, y) - pearson_of_pairs(naive_ranks(x), naive_ranks(y))) <=
              rounding::fp64_bound(operations, 1));
  }));
  CHECK(average_ranks(Numbers{3, 1, 3, kInfinity, 2, 3}) == Numbers{4, 1, 4, 6, 2, 4});
}

TEST_CASE("Pearson does not overflow and is NaN for non-finite numbers; Spearman accepts infinities", "[metrics]") {
  const double expected = -std::sqrt(3. / 7);
  CHECK(is_near(pearson(Numbers{1e200, 2e200, -1e200}, Numbers{1, 2, 3}), expected));
  CHECK(is_near(pearson(Numbers{1e-200, 2e-200, -1e-200}, Numbers{1, 2, 3}), expected));
  CHECK(pearson(Numbers{0.1, 0.2, 0.3}, Numbers{0.3, 0.6, 0.9}) <= 1);
  CHECK(is_near(spearman(Numbers{1, 2, kInfinity}, Numbers{1, 2, 3}), 1));
  const Numbers finite{1, 2, 3};
  for (double not_finite : {std::nan(""), kInfinity}) CHECK(std::isnan(pearson(finite, Numbers{1, 2, not_finite})));
  CHECK(std::isnan(spearman(finite, Numbers{1, 2, std::nan("")})));
  CHECK(std::isnan(spearman(Numbers{std::nan(""), 1, 2}, finite)));
  for (auto* score : {pearson, spearman}) {
    CHECK(std::isnan(score({}, {})));
    CHECK(std::isnan(score(Numbers{1}, Numbers{2})));
    CHECK(std::isnan(score(finite, Numbers{0.1, 0.1, 0.1})));
    CHECK(status_of([&] { score(finite, {}); }) == 3);
  }
}

TEST_CASE("normalised_answer() removes case, articles and ASCII punctuation", "[metrics]") {
  CHECK(normalised_answer("The  Cat's an_a-the, (a) Dog.") == "cats anathe dog");
  CHECK(normalised_answer("a a the") == "");
  CHECK(normalised_answer("a\u00a0AN\u3000\u00c9tude \u0391\u03a3") == "\u00e9tude \u03b1\u03c2");
  // Non-ASCII punctuation is kept, but it ends a word, so that an adjacent article is removed.
  CHECK(normalised_answer("a\u2013b the\u2019s \u201cquote\u201d") == "\u2013b \u2019s \u201cquote\u201d");
  CHECK(normalised_answer("a\u0301 \u00e1 a1 athe") == "\u0301 \u00e1 a1 athe");
  CHECK(normalised_answer("th.e .a.n x") == "x");  // articles are removed after punctuation
  CHECK(normalised_answer(" \t ") == "");
}

TEST_CASE("exact match and F1 of an answer are the maxima over the true answers", "[metrics]") {
  CHECK(score_of("the Cat", {"cat."}).exact == 1);
  CHECK(score_of("the Cat", {"cat."}).f1 == 1);
  const AnswerScore partial_match = score_of("a big big dog", {"big cat", "dog big dog dog"});
  CHECK(partial_match.exact == 0);
  CHECK(is_near(partial_match.f1, 2 * (2.0 / 3) * 0.5 / (2.0 / 3 + 0.5)));
  // A repeated word matches at most as many times as each of the two answers contains it.
  CHECK(is_near(score_of("x x", {"x"}).f1, 2.0 / 3));
  CHECK(score_of("", {"the"}).exact == 1);
  CHECK(score_of("", {"the"}).f1 == 0);
  CHECK(score_of("", {"cat"}).exact == 0);
  CHECK(status_of([] { score_of("x", {}); }) == 3);

  AnswerScoreMean answer_scores;
  CHECK(std::isnan(answer_scores.mean_percent().f1));
  answer_scores.add(score_of("x x", {"x"}));
  answer_scores.add(score_of("y", {"y", "z"}));
  answer_scores.add({});
  CHECK(answer_scores.num_questions() == 3);
  CHECK(answer_scores.mean_percent().exact == rounding::fp64(100.0 / 3, 2));
  CHECK(answer_scores.mean_percent().f1 == rounding::fp64(500.0 / 9, 4));
}
