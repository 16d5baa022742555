// Bounds on the rounding errors of results in fp64, fp32, fp16 or bf16, from the error of the composed path or from the
// number of roundings.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace tolerance {

// Unit roundoffs: the largest relative error of one rounding, half the distance between 1 and the next number.
inline constexpr double kFp64 = 0x1p-53, kFp32 = 0x1p-24, kFp16 = 0x1p-11, kBf16 = 0x1p-8;

// Returns the bound on the error of a fused result: twice the error of the composed path in the same precision or, if
// it is larger, twice one rounding of a number of magnitude `magnitude`; plus 8 units in the last place of fp32, in
// which fused operations accumulate:
//   2 max(composed_error, unit_roundoff · magnitude) + 16 kFp32 · magnitude
// `magnitude` is the largest absolute result of the reference, or of the terms that cancel in it.
inline double composed_error_bound(double composed_error, double unit_roundoff, double magnitude) {
  return 2 * std::max(composed_error, unit_roundoff * magnitude) + 16 * kFp32 * magnitude;
}

// Returns the term to add to composed_error_bound() for sums weighted by probabilities: the effect of errors of the
// logits. A logit is a sum in fp32 whose rounding errors add up to about kFp32 · logit_magnitude, where
// logit_magnitude is the largest Σ |term| of a logit (Higham and Mary 2019). The softmax turns this error into a
// relative error of each probability, once directly and once through the sum over the row: a factor of 2. The other
// factor of 2 allows for logits whose errors add up to twice as much. The composed path of tests without LibTorch
// accumulates in double precision, so its error does not include this term.
inline double logit_error_bound(double logit_magnitude, double magnitude) {
  return 4 * kFp32 * logit_magnitude * magnitude;
}

// Factor on `magnitude` in composed_error_bound() for fp16 results with head mixing: the kernel rounds probabilities
// three times, once more than the composed path, since warps exchange probabilities in fp16.
inline constexpr double kFp16ExchangeFactor = 1.5;

// Relative error of an fp32 product that the tensor cores of a GPU compute as three products of 11-bit numbers, with
// each factor split as x = high + low: low · low is omitted and both low parts are rounded, three errors of 2^-11 ·
// 2^-11.
inline constexpr double kSplitProductError = 3 * 0x1p-22;

// Returns the term to add to composed_error_bound() for fp32 on a GPU: the effect of the errors of logits that are
// computed from split products. Unlike logit_error_bound(), the term has no factor of 4, since kSplitProductError is
// the largest error of a product, and errors of different products partly cancel.
inline double split_logit_error_bound(double logit_magnitude, double magnitude) {
  return kSplitProductError * logit_magnitude * magnitude;
}

// Returns the bound on the error of a sum of `num_terms` products of exact numbers, added in fp32 in any order and
// rounded once to a type of unit roundoff `unit_roundoff`, for results without a composed path to compare with (Higham
// 2002, section 3.1):
//   γ Σ |x_i y_i| + unit_roundoff · |Σ x_i y_i|,   γ = n v / (1 - n v),   n = num_terms, v = kFp32
// `magnitude` is Σ |x_i y_i|, which bounds the sum itself.
inline double sum_error_bound(int64_t num_terms, double unit_roundoff, double magnitude) {
  const double n_v = static_cast<double>(num_terms) * kFp32;
  return (n_v / (1 - n_v) + unit_roundoff) * magnitude;
}

// Returns a bound like sum_error_bound() that assumes independent errors of the additions and has 3 √num_terms v in
// place of γ. Larger errors are rare (Higham and Mary 2019).
inline double long_sum_error_bound(int64_t num_terms, double unit_roundoff, double magnitude) {
  return (3 * std::sqrt(static_cast<double>(num_terms)) * kFp32 + unit_roundoff) * magnitude;
}

// Returns the bound on the error of a result of magnitude `magnitude` after a chain of `num_roundings` roundings of
// unit roundoff `unit_roundoff`: 3 √num_roundings · unit_roundoff · magnitude. Like long_sum_error_bound(), the bound
// assumes independent errors, whose sum rarely exceeds three times its standard deviation.
inline double chain_error_bound(int64_t num_roundings, double unit_roundoff, double magnitude) {
  return 3 * std::sqrt(static_cast<double>(num_roundings)) * unit_roundoff * magnitude;
}

}  // namespace tolerance
