// Scores of predicted classes, numbers and answers: the metrics of GLUE (Wang et al. 2018) and of SQuAD v1.1 (Rajpurkar
// et al. 2016). Except for the rounding of the last bits, they equal the scores of scikit-learn 1.9, scipy 1.17 and the
// official script of SQuAD. The true and the predicted values have one entry per row; for spans of different sizes, the
// functions throw Error(input). An undefined score is NaN, where those packages raise an error or return NaN.
//
//   accuracy   fraction of rows whose predicted class is the true class; NaN without rows
//   F1         2 t / (n + m): t rows have the true and the predicted class 1, n rows the true class 1, and m rows the
//              predicted class 1; all other classes count as negative. 0 if no row has class 1; NaN without rows
//   Matthews   (c N - Σ t_k p_k) / √((N² - Σ p_k²) (N² - Σ t_k²)) for N rows, of which c have the right class, t_k the
//              true class k and p_k the predicted class k, for any number of classes (Gorodkin 2004; for
//              two classes, the phi coefficient). 0 if all true or all predicted classes are equal; NaN without rows
//   Pearson    Σ (x - x̄)(y - ȳ) / √(Σ (x - x̄)² Σ (y - ȳ)²); NaN if x or y is constant, with fewer than two rows, or
//              if a number is NaN or infinite
//   Spearman   Pearson of the ranks; equal numbers have the mean of their ranks; infinite numbers are ranked
//
// Classes may start at any number. Accuracy and F1 are within [0, 1] and Matthews within [-1, 1], not in percent.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace mh::metrics {

double accuracy(std::span<const int32_t> true_classes, std::span<const int32_t> predictions);
double f1(std::span<const int32_t> true_classes, std::span<const int32_t> predictions);
double matthews(std::span<const int32_t> true_classes, std::span<const int32_t> predictions);
double pearson(std::span<const double> x, std::span<const double> y);
double spearman(std::span<const double> x, std::span<const double> y);

// Returns the ranks of numbers, from 1; equal numbers have the mean of their ranks. NaN is not allowed.
std::vector<double> average_ranks(std::span<const double> numbers);

// Returns an answer in the form that SQuAD compares: lower case, without ASCII punctuation, without the words "a", "an"
// and "the", and with single spaces between words. `answer` is valid UTF-8. Letters, digits and white space are defined
// as in Python.
std::string normalised_answer(std::string_view answer);

// Score of a predicted answer against a true answer. `exact`: 1 if the normalised answers are equal, otherwise 0. `f1`:
// harmonic mean of the precision and the recall of words, where a word counts as often as it occurs in both answers; 0
// if the answers share no word, or are both empty.
struct AnswerScore {
  double exact = 0;
  double f1 = 0;
};
// Returns the best exact score and the best F1 over the true answers, of which there is at least one.
AnswerScore answer_score(std::string_view answer, std::span<const std::string> gold_answers);

// Means of answer scores over questions, in percent. The scores are added in the order of the calls of add(). For a
// question without a prediction, the caller adds the score 0: add({}).
class AnswerScoreMean {
 public:
  void add(const AnswerScore& score);
  int64_t num_questions() const { return num_questions_; }
  // Returns the mean scores in percent; NaN without questions.
  AnswerScore mean_percent() const;

 private:
  AnswerScore sum_;
  int64_t num_questions_ = 0;
};

}  // namespace mh::metrics
