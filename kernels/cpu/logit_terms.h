// The terms of logits and softmax that depend on no product, for a CPU: soft cap, position bias and sinks
// (AttentionParams). The functions compute one query of one head.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "attention_params.h"
#include "cpu/vector.h"

namespace mh::kernels {

// Replaces the logits x in s (count) by soft_cap * tanh(x / soft_cap). slopes (count): receives the derivative; null:
// not computed. `count` is rounded up to a multiple of 16.
MH_INLINE void cap_logits(float soft_cap, int64_t count, float* s, float* slopes) {
  const float inverse = 1 / soft_cap;
  for (int64_t i = 0; i < count; i += lanes) {
    Floats x, slope;
    load(s + i, x);
    x = x * inverse;
    tanh_with_slope(x, slope);
    x = x * soft_cap;
    store(x, s + i);
    if (slopes != nullptr) store(slope, slopes + i);
  }
}

// Computes `to` (count) += `from` (count).
MH_INLINE void add_to(const float* from, int64_t count, float* to) {
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    Floats a, b;
    load(to + i, a);
    load(from + i, b);
    a = a + b;
    store(a, to + i);
  }
  for (; i < count; ++i) to[i] += from[i];
}

// Computes to (count) *= factors (count). `count` is rounded up to a multiple of 16.
MH_INLINE void multiply_by(const float* factors, int64_t count, float* to) {
  for (int64_t i = 0; i < count; i += lanes) {
    Floats a, b;
    load(factors + i, a);
    load(to + i, b);
    b = b * a;
    store(b, to + i);
  }
}

// Calls visit(key, count, column) for each key range of the position bias that has some of the keys [begin, end): the
// `count` keys from `key` on belong to the columns from `column` on of the bias for query `query`.
template <class Visit>
MH_INLINE void for_each_bias_range(const AttentionParams& params, int64_t query, int64_t begin, int64_t end,
                                   const Visit& visit) {
  const PositionBiasParams& position_bias = params.position_bias;
  for (int n = 0; n < position_bias.num_key_ranges; ++n) {
    const KeyRange& range = position_bias.key_ranges[n];
    const int64_t key = std::max(begin, range.first_key), count = std::min(end, range.first_key + range.num_keys) - key;
    if (count > 0) visit(key, count, range.first_row + params.queries - 1 - query + key - range.first_key);
  }
}

// Returns the address of the row of head j in position_bias.bias, that is, of its column 0.
MH_INLINE const float* position_bias_row(const AttentionParams& params, int64_t j) {
  return params.position_bias.bias + j * params.position_bias.head_stride;
}

// Returns the address of the sink of head j; null if there are no sinks.
MH_INLINE const float* sink_of(const AttentionParams& params, int64_t j) {
  return params.sinks != nullptr ? params.sinks + j : nullptr;
}

// The sum Σ exp(logit - max_logit) of a query, and its log-sum-exp, nats. `sum` is 0 and `lse` is +inf for a fully
// masked row, so that the backward pass computes probabilities exp(logit - lse) of 0.
struct RowSum {
  float sum, lse;
};
// Returns the sums of a query that include a sink, for the sum of the exponentials of its keys. sink: null, no sink. If
// the sink exceeds max_logit by more than 88, RowSum::sum is +inf: the probabilities of all keys are below 1e-38.
MH_INLINE RowSum add_sink(const float* sink, float max_logit, float sum) {
  if (sum == 0) return {0, INFINITY};
  const float lse = max_logit + std::log(sum);
  if (sink == nullptr) return {sum, lse};
  return {sum + std::exp(*sink - max_logit), std::max(lse, *sink) + std::log1p(std::exp(-std::abs(lse - *sink)))};
}

}  // namespace mh::kernels
