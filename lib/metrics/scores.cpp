#include "metrics/scores.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>

#include "base/error.h"
#include "base/text.h"
#include "base/unicode.h"

namespace mh::metrics {

namespace {

constexpr double kUndefined = std::numeric_limits<double>::quiet_NaN();

void require_equal_sizes(size_t num_true_values, size_t num_predictions) {
  if (num_true_values != num_predictions)
    refuse_input("scores", str(count_of(num_true_values, "prediction"), ", one for each true value"),
                 count_of(num_predictions, "prediction"), "pass a prediction for each true value");
}

// Returns the deviations from the mean, divided by the largest absolute deviation so that squares neither overflow nor
// underflow. Returns an empty vector if all numbers are equal, or if a number or the mean is not finite.
std::vector<double> deviations(std::span<const double> numbers) {
  const bool is_constant = std::all_of(numbers.begin(), numbers.end(), [&](double v) { return v == numbers[0]; });
  if (is_constant) return {};
  const double mean = std::accumulate(numbers.begin(), numbers.end(), 0.0) / static_cast<double>(numbers.size());
  std::vector<double> out(numbers.begin(), numbers.end());
  double max_deviation = 0;
  for (double& v : out) {
    v -= mean;
    max_deviation = std::max(max_deviation, std::abs(v));
    if (!std::isfinite(v)) return {};
  }
  for (double& v : out) v /= max_deviation;
  return out;
}

double dot_product(const std::vector<double>& a, const std::vector<double>& b) {
  return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
}

// Returns whether Python's \w matches c. Ignores the underscore, which normalise() has removed with the punctuation.
bool is_word_character(char32_t c) { return is_letter(c) || is_number(c); }

bool is_article(std::u32string_view word) { return word == U"a" || word == U"an" || word == U"the"; }

// Replaces the words "a", "an" and "the" by spaces; a word is a maximal sequence of letters and digits.
std::u32string remove_articles(std::u32string_view text) {
  std::u32string out;
  for (size_t begin = 0; begin < text.size();) {
    size_t end = begin;
    while (end < text.size() && is_word_character(text[end])) ++end;
    if (const auto word = text.substr(begin, end - begin); is_article(word)) out += U' ';
    else out += word;
    if (end < text.size()) out += text[end];
    begin = end + 1;
  }
  return out;
}

std::u32string normalise(std::string_view answer) {
  std::u32string text = lower_case(code_points(answer));
  std::erase_if(text, [](char32_t c) {
    return (c >= U'!' && c <= U'/') || (c >= U':' && c <= U'@') || (c >= U'[' && c <= U'`') || (c >= U'{' && c <= U'~');
  });
  text = remove_articles(text);
  std::u32string out;
  for (std::u32string_view word : words_of(text)) {
    if (!out.empty()) out += U' ';
    out += word;
  }
  return out;
}

double shared_words_f1(const std::u32string& answer, const std::u32string& gold_answer) {
  const auto answer_words = words_of(answer), gold_words = words_of(gold_answer);
  std::map<std::u32string_view, int64_t> remaining_counts;
  for (std::u32string_view word : gold_words) ++remaining_counts[word];
  int64_t num_shared = 0;
  for (std::u32string_view word : answer_words)
    if (auto it = remaining_counts.find(word); it != remaining_counts.end() && it->second-- > 0) ++num_shared;
  if (num_shared == 0) return 0;
  const double precision = static_cast<double>(num_shared) / static_cast<double>(answer_words.size());
  const double recall = static_cast<double>(num_shared) / static_cast<double>(gold_words.size());
  return 2 * precision * recall / (precision + recall);
}

}  // namespace

double accuracy(std::span<const int32_t> true_classes, std::span<const int32_t> predictions) {
  require_equal_sizes(true_classes.size(), predictions.size());
  if (true_classes.empty()) return kUndefined;
  int64_t num_correct = 0;
  for (size_t i = 0; i < true_classes.size(); ++i) num_correct += true_classes[i] == predictions[i] ? 1 : 0;
  return static_cast<double>(num_correct) / static_cast<double>(true_classes.size());
}

double f1(std::span<const int32_t> true_classes, std::span<const int32_t> predictions) {
  require_equal_sizes(true_classes.size(), predictions.size());
  if (true_classes.empty()) return kUndefined;
  int64_t true_positives = 0, num_true_plus_predicted = 0;
  for (size_t i = 0; i < true_classes.size(); ++i) {
    true_positives += true_classes[i] == 1 && predictions[i] == 1 ? 1 : 0;
    num_true_plus_predicted += (true_classes[i] == 1 ? 1 : 0) + (predictions[i] == 1 ? 1 : 0);
  }
  return num_true_plus_predicted == 0
             ? 0
             : 2 * static_cast<double>(true_positives) / static_cast<double>(num_true_plus_predicted);
}

double matthews(std::span<const int32_t> true_classes, std::span<const int32_t> predictions) {
  require_equal_sizes(true_classes.size(), predictions.size());
  if (true_classes.empty()) return kUndefined;
  struct ClassCounts {
    double num_true = 0, num_predicted = 0;
  };
  std::map<int32_t, ClassCounts> classes;
  double num_correct = 0;
  for (size_t i = 0; i < true_classes.size(); ++i) {
    ++classes[true_classes[i]].num_true;
    ++classes[predictions[i]].num_predicted;
    num_correct += true_classes[i] == predictions[i] ? 1 : 0;
  }
  const auto num_rows = static_cast<double>(true_classes.size());
  double covariance = num_correct * num_rows, predicted_variance = num_rows * num_rows,
         true_variance = num_rows * num_rows;
  for (const auto& [number, counts] : classes) {
    covariance -= counts.num_true * counts.num_predicted;
    predicted_variance -= counts.num_predicted * counts.num_predicted;
    true_variance -= counts.num_true * counts.num_true;
  }
  const double variance_product = predicted_variance * true_variance;
  return variance_product == 0 ? 0 : covariance / std::sqrt(variance_product);
}

double pearson(std::span<const double> x, std::span<const double> y) {
  require_equal_sizes(x.size(), y.size());
  const std::vector<double> a = deviations(x), b = deviations(y);
  if (a.empty() || b.empty()) return kUndefined;
  return std::clamp(dot_product(a, b) / (std::sqrt(dot_product(a, a)) * std::sqrt(dot_product(b, b))), -1.0, 1.0);
}

std::vector<double> average_ranks(std::span<const double> numbers) {
  std::vector<size_t> order(numbers.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return numbers[a] < numbers[b]; });
  std::vector<double> ranks(numbers.size());
  for (size_t begin = 0, end = 0; begin < order.size(); begin = end) {
    while (end < order.size() && numbers[order[end]] == numbers[order[begin]]) ++end;
    for (size_t i = begin; i < end; ++i) ranks[order[i]] = 0.5 * static_cast<double>(begin + 1 + end);
  }
  return ranks;
}

double spearman(std::span<const double> x, std::span<const double> y) {
  require_equal_sizes(x.size(), y.size());
  auto is_nan = [](double v) { return std::isnan(v); };
  if (std::any_of(x.begin(), x.end(), is_nan) || std::any_of(y.begin(), y.end(), is_nan)) return kUndefined;
  return pearson(average_ranks(x), average_ranks(y));
}

std::string normalised_answer(std::string_view answer) {
  std::string out;
  for (char32_t c : normalise(answer)) append_utf8(c, out);
  return out;
}

AnswerScore answer_score(std::string_view answer, std::span<const std::string> gold_answers) {
  if (gold_answers.empty()) refuse_input("answers", "at least one true answer", "none", "add a true answer");
  const std::u32string normalised_prediction = normalise(answer);
  AnswerScore best_score;
  for (const std::string& gold_answer : gold_answers) {
    const std::u32string normalised_gold_answer = normalise(gold_answer);
    best_score.exact = std::max(best_score.exact, normalised_prediction == normalised_gold_answer ? 1.0 : 0.0);
    best_score.f1 = std::max(best_score.f1, shared_words_f1(normalised_prediction, normalised_gold_answer));
  }
  return best_score;
}

void AnswerScoreMean::add(const AnswerScore& score) {
  sum_.exact += score.exact;
  sum_.f1 += score.f1;
  ++num_questions_;
}

AnswerScore AnswerScoreMean::mean_percent() const {
  const auto count = static_cast<double>(num_questions_);
  if (num_questions_ == 0) return {kUndefined, kUndefined};
  return {100 * sum_.exact / count, 100 * sum_.f1 / count};
}

}  // namespace mh::metrics
