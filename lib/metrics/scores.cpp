#include "metrics/scores.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>

#include "base/error.h"
#include "base/unicode.h"

namespace mh::metrics {

namespace {

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

void require_same(size_t truth, size_t predicted) {
  if (truth != predicted)
    throw Error(Exit::input, Problem{"scores", str("as many predictions as true values, ", truth), str(predicted), ""});
}

// Returns the deviations from the mean, divided by the largest absolute deviation so that squares neither overflow nor
// underflow. Returns an empty vector if all numbers are equal or one is not finite.
std::vector<double> deviations(std::span<const double> numbers) {
  const bool constant = std::all_of(numbers.begin(), numbers.end(), [&](double v) { return v == numbers[0]; });
  if (constant) return {};
  const double mean = std::accumulate(numbers.begin(), numbers.end(), 0.0) / static_cast<double>(numbers.size());
  std::vector<double> out(numbers.begin(), numbers.end());
  double largest = 0;
  for (double& v : out) {
    v -= mean;
    largest = std::max(largest, std::abs(v));
    if (!std::isfinite(v)) return {};
  }
  for (double& v : out) v /= largest;
  return out;
}

double product(const std::vector<double>& a, const std::vector<double>& b) {
  return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
}

// Returns whether the \w of Python matches c, except for the underscore, which is already removed with the punctuation.
bool is_word_character(char32_t c) { return is_letter(c) || is_number(c); }

bool is_article(std::u32string_view word) { return word == U"a" || word == U"an" || word == U"the"; }

// Replaces the words a, an and the by spaces; a word is a maximal sequence of letters and digits.
std::u32string without_articles(std::u32string_view text) {
  std::u32string out;
  for (size_t at = 0; at < text.size();) {
    size_t end = at;
    while (end < text.size() && is_word_character(text[end])) ++end;
    if (const auto word = text.substr(at, end - at); is_article(word)) out += U' ';
    else out += word;
    if (end < text.size()) out += text[end];
    at = end + 1;
  }
  return out;
}

std::u32string normalised(std::string_view answer) {
  std::u32string text = lower_case(code_points(answer));
  std::erase_if(text, [](char32_t c) {
    return (c >= U'!' && c <= U'/') || (c >= U':' && c <= U'@') || (c >= U'[' && c <= U'`') || (c >= U'{' && c <= U'~');
  });
  text = without_articles(text);
  std::u32string out;
  for (std::u32string_view word : words_of(text)) {
    if (!out.empty()) out += U' ';
    out += word;
  }
  return out;
}

double shared_words_f1(const std::u32string& answer, const std::u32string& truth) {
  const auto own = words_of(answer), other = words_of(truth);
  std::map<std::u32string_view, int64_t> left;
  for (std::u32string_view word : other) ++left[word];
  int64_t shared = 0;
  for (std::u32string_view word : own)
    if (auto it = left.find(word); it != left.end() && it->second-- > 0) ++shared;
  if (shared == 0) return 0;
  const double precision = static_cast<double>(shared) / static_cast<double>(own.size());
  const double recall = static_cast<double>(shared) / static_cast<double>(other.size());
  return 2 * precision * recall / (precision + recall);
}

}  // namespace

double accuracy(std::span<const int32_t> truth, std::span<const int32_t> predicted) {
  require_same(truth.size(), predicted.size());
  if (truth.empty()) return kNone;
  int64_t right = 0;
  for (size_t i = 0; i < truth.size(); ++i) right += truth[i] == predicted[i] ? 1 : 0;
  return static_cast<double>(right) / static_cast<double>(truth.size());
}

double f1(std::span<const int32_t> truth, std::span<const int32_t> predicted) {
  require_same(truth.size(), predicted.size());
  if (truth.empty()) return kNone;
  int64_t both = 0, either = 0;
  for (size_t i = 0; i < truth.size(); ++i) {
    both += truth[i] == 1 && predicted[i] == 1 ? 1 : 0;
    either += (truth[i] == 1 ? 1 : 0) + (predicted[i] == 1 ? 1 : 0);
  }
  return either == 0 ? 0 : 2 * static_cast<double>(both) / static_cast<double>(either);
}

double matthews(std::span<const int32_t> truth, std::span<const int32_t> predicted) {
  require_same(truth.size(), predicted.size());
  if (truth.empty()) return kNone;
  struct Sides {
    double truth = 0, predicted = 0;
  };
  std::map<int32_t, Sides> classes;
  double right = 0;
  for (size_t i = 0; i < truth.size(); ++i) {
    ++classes[truth[i]].truth;
    ++classes[predicted[i]].predicted;
    right += truth[i] == predicted[i] ? 1 : 0;
  }
  const auto rows = static_cast<double>(truth.size());
  double between = right * rows, predicted_spread = rows * rows, truth_spread = rows * rows;
  for (const auto& [number, sides] : classes) {
    between -= sides.truth * sides.predicted;
    predicted_spread -= sides.predicted * sides.predicted;
    truth_spread -= sides.truth * sides.truth;
  }
  const double spread = predicted_spread * truth_spread;
  return spread == 0 ? 0 : between / std::sqrt(spread);
}

double pearson(std::span<const double> x, std::span<const double> y) {
  require_same(x.size(), y.size());
  const std::vector<double> a = deviations(x), b = deviations(y);
  if (a.empty() || b.empty()) return kNone;
  return std::clamp(product(a, b) / (std::sqrt(product(a, a)) * std::sqrt(product(b, b))), -1.0, 1.0);
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
  require_same(x.size(), y.size());
  auto no_number = [](double v) { return std::isnan(v); };
  if (std::any_of(x.begin(), x.end(), no_number) || std::any_of(y.begin(), y.end(), no_number)) return kNone;
  return pearson(average_ranks(x), average_ranks(y));
}

std::string normalised_answer(std::string_view answer) {
  std::string out;
  for (char32_t c : normalised(answer)) append_utf8(c, out);
  return out;
}

AnswerScore answer_score(std::string_view answer, std::span<const std::string> truth) {
  if (truth.empty()) throw Error(Exit::input, Problem{"answers", "at least one true answer", "none", ""});
  const std::u32string own = normalised(answer);
  AnswerScore best;
  for (const std::string& one : truth) {
    const std::u32string other = normalised(one);
    best.exact = std::max(best.exact, own == other ? 1.0 : 0.0);
    best.f1 = std::max(best.f1, shared_words_f1(own, other));
  }
  return best;
}

void AnswerScores::add(const AnswerScore& score) {
  sum_.exact += score.exact;
  sum_.f1 += score.f1;
  ++questions_;
}

AnswerScore AnswerScores::percent() const {
  const auto count = static_cast<double>(questions_);
  if (questions_ == 0) return {kNone, kNone};
  return {100 * sum_.exact / count, 100 * sum_.f1 / count};
}

}  // namespace mh::metrics
