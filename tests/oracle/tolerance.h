// How much a result in fp32, fp16 or bf16 may differ from a reference in double precision. The tests of kernels and of
// fused operations take their bounds from here.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace tolerance {

// Rounding units: the largest relative error of one rounding, half the distance between 1 and the next number.
inline constexpr double kFp32 = 0x1p-24, kFp16 = 0x1p-11, kBf16 = 0x1p-8;

// The bound on the error of a fused result: twice the error of the composed one in the same precision, which rounds at
// least once what is as large as `size`, and 8 units in the last place of fp32, in which fused operations add:
//   2 max(composed_error, unit · size) + 16 kFp32 · size
// `size` is the largest number among the reference's results, or among the terms that cancel in them.
inline double beside_composed(double composed_error, double unit, double size) {
  return 2 * std::max(composed_error, unit * size) + 16 * kFp32 * size;
}

// Returns the addition to that bound for results that probabilities weigh: the error of the logits. A logit is a sum in
// fp32 whose rounding errors add up to about kFp32 · logit_size (Higham and Mary 2019; three times that is rare). The
// softmax turns it into a relative error of each probability, once directly and once through the sum of the row. The
// composed path of tests without a tensor library accumulates in double, so its own error lacks this part.
inline double of_logits(double logit_size, double size) { return 4 * kFp32 * logit_size * size; }

// The size of results of fp16 with mixed heads, for beside_composed: their probabilities are rounded once more than the
// composed path's, when warps exchange them, three times in place of two.
inline constexpr double kExchangedFp16 = 1.5;

// The relative error of a product in fp32 that the tensor cores of a GPU take as three of numbers of 11 bits, x = high
// + low: low * low is left out, and each low is rounded, three times 2^-11 · 2^-11.
inline constexpr double kSplitProduct = 3 * 0x1p-22;

// Returns the addition to the bound for fp32 on a GPU: the error of the logits from products that are split, as
// of_logits.
inline double of_split_logits(double logit_size, double size) { return kSplitProduct * logit_size * size; }

// The bound on the error of a sum of `terms` products of exact numbers, added in fp32 in any order and rounded once to
// a type of the given unit, where there is no composed path to compare with (Higham 2002, section 3.1):
//   γ Σ |x_i y_i| + unit · |Σ x_i y_i|,   γ = n v / (1 - n v),   n = terms, v = kFp32
// `sizes` is Σ |x_i y_i|, which the sum itself does not exceed.
inline double of_sum(int64_t terms, double unit, double sizes) {
  const double lost = static_cast<double>(terms) * kFp32;
  return (lost / (1 - lost) + unit) * sizes;
}

// The same where the errors of single additions are independent: the root of `terms` in place of `terms`, of which
// three times is rare (Higham and Mary 2019).
inline double of_long_sum(int64_t terms, double unit, double sizes) {
  return (3 * std::sqrt(static_cast<double>(terms)) * kFp32 + unit) * sizes;
}

}  // namespace tolerance
