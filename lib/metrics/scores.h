// Scores of classes, numbers and answers against the true ones: those of GLUE (Wang et al. 2018) and of SQuAD v1.1
// (Rajpurkar et al. 2016), equal to those of scikit-learn 1.9, scipy 1.17 and the official script of SQuAD except for
// the rounding of the last bits. Both sides have one entry per row; other sizes throw Error(input). An undefined score
// is NaN, where those packages raise an error or return NaN.
//
//   accuracy   fraction of rows with equal classes (NaN without rows)
//   F1         2 t / (n + m): t rows are 1 on both sides, n and m on each; any other class is not 1. 0 if no row is 1
//              (NaN without rows)
//   Matthews   with N rows, c of them right, and t_k and p_k of class k on either side, of any number of classes
//              (Gorodkin 2004; of two the phi coefficient):
//              (c N - Σ t_k p_k) / √((N² - Σ p_k²) (N² - Σ t_k²)); 0 if a side has a single class (NaN without rows)
//   Pearson    Σ (x - x̄)(y - ȳ) / √(Σ (x - x̄)² Σ (y - ȳ)²); NaN if a side is constant, with fewer than two rows, and if
//   a
//              number is NaN or infinite
//   Spearman   Pearson of the ranks; equal numbers have the mean of their ranks; an infinite number has a rank
//
// Classes may start at any number; accuracy, F1 and Matthews are within [0, 1] and [-1, 1], not percent.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace mh::metrics {

double accuracy(std::span<const int32_t> truth, std::span<const int32_t> predicted);
double f1(std::span<const int32_t> truth, std::span<const int32_t> predicted);
double matthews(std::span<const int32_t> truth, std::span<const int32_t> predicted);
double pearson(std::span<const double> x, std::span<const double> y);
double spearman(std::span<const double> x, std::span<const double> y);

// Returns the ranks of numbers other than NaN, from 1; equal numbers have the mean of their ranks.
std::vector<double> average_ranks(std::span<const double> numbers);

// Returns an answer as SQuAD compares it: lower case, without ASCII punctuation, without the words a, an and the,
// single spaces between words. Valid UTF-8; letters, digits and white space are those of Python.
std::string normalised_answer(std::string_view answer);

// exact: 1 if both are equal once normalised. f1: 2 P R / (P + R) of their words, each counted as often as it occurs on
// both sides; 0 if they share none, as for two empty answers.
struct AnswerScore {
  double exact = 0;
  double f1 = 0;
};
// Returns the best of each score over several true answers (at least one).
AnswerScore answer_score(std::string_view answer, std::span<const std::string> truth);

// Means over questions in percent, added in order. A question without an answer counts as 0: add({}).
class AnswerScores {
 public:
  void add(const AnswerScore& score);
  int64_t questions() const { return questions_; }
  AnswerScore percent() const;  // NaN without questions

 private:
  AnswerScore sum_;
  int64_t questions_ = 0;
};

}  // namespace mh::metrics
