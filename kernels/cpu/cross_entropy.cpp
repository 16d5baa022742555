// Computes the cross-entropy of a row and its gradient, and instantiates CrossEntropyLoops for one instruction set, for
// fp32 and bf16 logits.
#include "cpu/cross_entropy.h"

#include <cmath>

#include "cpu/vector.h"

namespace mh::kernels {

namespace {

// Computes the loss of a row of logits x (vocabulary) in three passes, during which the row stays in the L2 cache. The
// first pass computes the maximum and, if has_smoothing, the sum of the logits; the second the exponentials; the third,
// if params.needs_gradient, the gradient, which replaces the logits. exponential_row (vocabulary): scratch for the
// exponentials if params.needs_gradient; in fp32, equal to x.
template <bool has_smoothing, class T>
MH_INLINE void compute_row(const CrossEntropyParams& params, T* x, int64_t target, float* exponential_row,
                           CrossEntropyLoss& result) {
  const int64_t n = params.vocabulary_size, tail_begin = n - n % lanes;
  float target_logit = to_float(x[target]);

  Floats max_lanes, sums{};
  fill(max_lanes, -INFINITY);
  double logit_sum = 0;  // if has_smoothing, the sum of the logits; groups of 1024 logits are summed in fp32
  for (int64_t i = 0; i < tail_begin;) {
    int64_t end = i + 64 * lanes < tail_begin ? i + 64 * lanes : tail_begin;
    sums = Floats{};
    for (; i < end; i += lanes) {
      Floats v;
      load(x + i, v);
      max_lanes = select(v > max_lanes, v, max_lanes);
      if constexpr (has_smoothing) sums += v;
    }
    if constexpr (has_smoothing) logit_sum += sum_of(sums);
  }
  float maximum = max_of(max_lanes);
  for (int64_t i = tail_begin; i < n; ++i) {
    float v = to_float(x[i]);
    logit_sum += v;
    if (v > maximum) maximum = v;
  }

  double exp_sum = 0;
  for (int64_t i = 0; i < tail_begin;) {
    int64_t end = i + 64 * lanes < tail_begin ? i + 64 * lanes : tail_begin;
    sums = Floats{};
    for (; i < end; i += lanes) {
      Floats v;
      load(x + i, v);
      v = v - maximum;
      exp_nonpositive(v);
      sums += v;
      if (params.needs_gradient) store(v, exponential_row + i);
    }
    exp_sum += sum_of(sums);
  }
  float tail[lanes] = {};
  Floats tail_lanes{};
  if (tail_begin < n) {
    for (int64_t i = tail_begin; i < n; ++i) tail[i - tail_begin] = to_float(x[i]) - maximum;
    load(tail, tail_lanes);
    exp_nonpositive(tail_lanes);
    store(tail_lanes, tail);
    for (int64_t i = tail_begin; i < n; ++i) exp_sum += tail[i - tail_begin];
  }

  double lse = std::log(exp_sum) + maximum;
  result.nll = lse - target_logit;
  double e = params.label_smoothing;
  result.smoothed_loss = e == 0 ? result.nll : (1 - e) * result.nll + e * (lse - logit_sum / static_cast<double>(n));
  if (!params.needs_gradient) return;

  float inv_sum = static_cast<float>(1 / exp_sum), uniform_term = static_cast<float>(e / static_cast<double>(n));
  for (int64_t i = 0; i < tail_begin; i += lanes) {
    Floats v;
    load(exponential_row + i, v);
    v = v * inv_sum;
    if constexpr (has_smoothing) v = v - uniform_term;
    store(v, x + i);
  }
  for (int64_t i = tail_begin; i < n; ++i) from_float(tail[i - tail_begin] * inv_sum - uniform_term, x[i]);
  double p = std::exp(static_cast<double>(target_logit) - lse);
  from_float(static_cast<float>(p - uniform_term - (1 - e)), x[target]);
}

}  // namespace

template <SimdLevel L, class T>
void CrossEntropyLoops<L, T>::compute(const CrossEntropyParams& params, T* logits, int64_t target, float* exponentials,
                                      CrossEntropyLoss& result) {
  if (params.label_smoothing == 0) compute_row<false>(params, logits, target, exponentials, result);
  else compute_row<true>(params, logits, target, exponentials, result);
}

template struct CrossEntropyLoops<kSimdLevel, float>;
template struct CrossEntropyLoops<kSimdLevel, uint16_t>;

}  // namespace mh::kernels
