#include "cpu/cross_entropy.h"

#include <cmath>

#include "cpu/vector.h"

namespace mh::kernels {

namespace {

// Computes the loss of a row of logits x (vocabulary) in three passes, during which the row stays in the L2 cache: the
// maximum, and if `smooth` the sum of the logits; the exponentials; the gradient, which replaces the logits.
// `exponential_row` (vocabulary) receives the exponentials if there is a gradient; in fp32 it is x.
template <bool smooth, class T>
MH_INLINE void row_of(const CrossEntropy& params, T* x, int64_t target, float* exponential_row,
                      CrossEntropyRow& result) {
  const int64_t n = params.vocabulary, whole = n - n % lanes;
  float at_target = to_float(x[target]);

  Floats top, sums{};
  fill(top, -INFINITY);
  double total = 0;  // sum of the logits in fp64; only 1024 logits at a time are summed in fp32, for precision
  for (int64_t i = 0; i < whole;) {
    int64_t end = i + 64 * lanes < whole ? i + 64 * lanes : whole;
    sums = Floats{};
    for (; i < end; i += lanes) {
      Floats v;
      load(x + i, v);
      top = v > top ? v : top;
      if constexpr (smooth) sums += v;
    }
    if constexpr (smooth) total += sum_of(sums);
  }
  float maximum = max_of(top);
  for (int64_t i = whole; i < n; ++i) {
    float v = to_float(x[i]);
    total += v;
    if (v > maximum) maximum = v;
  }

  double exponentials = 0;
  for (int64_t i = 0; i < whole;) {
    int64_t end = i + 64 * lanes < whole ? i + 64 * lanes : whole;
    sums = Floats{};
    for (; i < end; i += lanes) {
      Floats v;
      load(x + i, v);
      v = v - maximum;
      exp_negative(v);
      sums += v;
      if (params.gradient) store(v, exponential_row + i);
    }
    exponentials += sum_of(sums);
  }
  float tail[lanes] = {};
  Floats rest{};
  if (whole < n) {
    for (int64_t i = whole; i < n; ++i) tail[i - whole] = to_float(x[i]) - maximum;
    load(tail, rest);
    exp_negative(rest);
    store(rest, tail);
    for (int64_t i = whole; i < n; ++i) exponentials += tail[i - whole];
  }

  double log_sum = std::log(exponentials) + maximum;
  result.nll = log_sum - at_target;
  double e = params.smoothing;
  result.smoothed = e == 0 ? result.nll : (1 - e) * result.nll + e * (log_sum - total / static_cast<double>(n));
  if (!params.gradient) return;

  float inverse = static_cast<float>(1 / exponentials), share = static_cast<float>(e / static_cast<double>(n));
  for (int64_t i = 0; i < whole; i += lanes) {
    Floats v;
    load(exponential_row + i, v);
    v = v * inverse;
    if constexpr (smooth) v = v - share;
    store(v, x + i);
  }
  for (int64_t i = whole; i < n; ++i) from_float(tail[i - whole] * inverse - share, x[i]);
  double p = std::exp(static_cast<double>(at_target) - log_sum);
  from_float(static_cast<float>(p - share - (1 - e)), x[target]);
}

}  // namespace

template <Level L, class T>
void CrossEntropyLoops<L, T>::row(const CrossEntropy& params, T* logits, int64_t target, float* exponentials,
                                  CrossEntropyRow& result) {
  if (params.smoothing == 0) row_of<false>(params, logits, target, exponentials, result);
  else row_of<true>(params, logits, target, exponentials, result);
}

template struct CrossEntropyLoops<kLevel, float>;
template struct CrossEntropyLoops<kLevel, uint16_t>;

}  // namespace mh::kernels
