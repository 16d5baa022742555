// Scores of classes, numbers and answers against the true ones: those of GLUE (Wang et al. 2018) and of SQuAD v1.1
// (Rajpurkar et al. 2016), the same as scikit-learn 1.9, scipy 1.17 and the official script of SQuAD give, but for the
// rounding of the last bits. Each is of rows that belong together, as many on either side; Error(input) where they are
// not. What a score does not exist for is nan, where those packages refuse it too.
//
//   accuracy   rows whose classes are the same, of all (nan of none)
//   F1         2 t / (n + m): t rows are 1 on both sides, n and m on each; any other class is not 1. 0 where no row
//              is 1 (nan of none)
//   Matthews   with N rows, c of them right, and t_k and p_k of class k on either side, of any number of classes
//              (Gorodkin 2004; of two the phi coefficient):
//              (c N - Σ t_k p_k) / √((N² - Σ p_k²) (N² - Σ t_k²)); 0 where a side is of one class (nan of no rows)
//   Pearson    Σ (x - x̄)(y - ȳ) / √(Σ (x - x̄)² Σ (y - ȳ)²); nan where a side is constant, of less than two rows, and
//              where a number is nan or infinite
//   Spearman   Pearson of the ranks, equal numbers having the mean of theirs; an infinite number has a rank
//
// Classes are counted from any number; accuracy, F1 and Matthews are within [0, 1] and [-1, 1], not percent.
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

// From 1 up; equal numbers have the mean of the ranks that they take. Not of nan.
std::vector<double> average_ranks(std::span<const double> numbers);

// An answer as SQuAD compares it: lower case, without punctuation marks of ASCII, without the words a, an and the,
// single spaces between words. Valid UTF-8; letters, digits and white space are Python's.
std::string normalised_answer(std::string_view answer);

// exact: 1 where both are the same once normalised. f1: 2 P R / (P + R) of their words, each counted as often as it
// occurs on both sides; 0 where they share none, so of two empty ones too.
struct AnswerScore {
  double exact = 0;
  double f1 = 0;
};
// Of several true answers (at least one) the best for each score by itself.
AnswerScore answer_score(std::string_view answer, std::span<const std::string> truth);

// The means of many questions in percent, added in their order. A question without an answer counts with 0: add({}).
class AnswerScores {
 public:
  void add(const AnswerScore& score);
  int64_t questions() const { return questions_; }
  AnswerScore percent() const;  // nan of none

 private:
  AnswerScore sum_;
  int64_t questions_ = 0;
};

}  // namespace mh::metrics
