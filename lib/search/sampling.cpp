#include "search/sampling.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <stdexcept>
#include <vector>

namespace mh::search {

namespace {

constexpr size_t kFirstSorted = 64;  // number of tokens that are sorted first
constexpr size_t kGrowth = 8;        // factor of the number of sorted tokens from one sort to the next
// std::partial_sort is faster than std::sort if it sorts less than 1 / kPartialSortDivisor of the tokens.
constexpr size_t kPartialSortDivisor = 8;

// Orders tokens by descending logits, equal logits by token.
struct ComesBefore {
  std::span<const float> logits;
  bool operator()(int32_t a, int32_t b) const {
    const float x_a = logits[static_cast<size_t>(a)], x_b = logits[static_cast<size_t>(b)];
    return x_a != x_b ? x_a > x_b : a < b;
  }
};

// Tokens in the order of ComesBefore, in which no two tokens are equal, so the result does not depend on the sorting
// algorithm.
// Only the part of the order that is read is sorted.
class DescendingTokens {
 public:
  // `num_candidates`: number of tokens in the order, at most the number of logits.
  DescendingTokens(std::span<const float> logits, size_t num_candidates) : logits_(logits), tokens_(logits.size()) {
    std::iota(tokens_.begin(), tokens_.end(), 0);
    if (num_candidates == size()) return;
    sort_to(num_candidates);
    tokens_.resize(num_candidates);
  }

  size_t size() const { return tokens_.size(); }
  // Returns all tokens, of which only the first ones are in order.
  const std::vector<int32_t>& partly_sorted() const { return tokens_; }
  // Returns the token with the index `i` in the order.
  int32_t operator[](size_t i) {
    if (i >= num_sorted_) sort_to(std::min(size(), std::max(kFirstSorted, kGrowth * i)));
    return tokens_[i];
  }

 private:
  // Sorts the tokens in front of the index `end`, and perhaps more.
  void sort_to(size_t end) {
    const auto first = tokens_.begin() + static_cast<int64_t>(num_sorted_);
    if (end < size() / kPartialSortDivisor) {
      std::partial_sort(first, tokens_.begin() + static_cast<int64_t>(end), tokens_.end(), ComesBefore{logits_});
      num_sorted_ = end;
    } else {
      std::sort(first, tokens_.end(), ComesBefore{logits_});
      num_sorted_ = size();
    }
  }

  std::span<const float> logits_;
  std::vector<int32_t> tokens_;
  size_t num_sorted_ = 0;
};

// Bounds of the threshold of inverse-CDF sampling; both are equal if the threshold is known exactly.
struct Threshold {
  double low, high;
};

}  // namespace

int32_t sample_token(std::span<const float> logits, double temperature, int64_t top_k, RandomSequence& random) {
  if (logits.empty()) throw std::logic_error("sample_token(): expected at least one logit; found none");
  const auto max = std::max_element(logits.begin(), logits.end());
  if (temperature == 0) return static_cast<int32_t>(max - logits.begin());
  DescendingTokens order(logits, top_k > 0 ? std::min(logits.size(), static_cast<size_t>(top_k)) : logits.size());
  const auto weight = [&](int32_t token) {
    return std::exp((static_cast<double>(logits[static_cast<size_t>(token)]) - static_cast<double>(*max)) /
                    temperature);
  };
  // Returns the first token whose cumulative weight is above the threshold, the last token if there is none; -1 if the
  // token depends on where between its bounds the threshold is.
  const auto token_above = [&](const Threshold& threshold) -> int32_t {
    double sum = 0;
    for (size_t i = 0; i < order.size(); ++i) {
      sum += weight(order[i]);
      if (sum > threshold.high) return order[i];
      if (sum > threshold.low) return -1;
    }
    return threshold.low == threshold.high ? order[order.size() - 1] : -1;
  };
  const auto sum_of_weights = [&](const std::vector<int32_t>& tokens) {
    return std::accumulate(tokens.begin(), tokens.end(), 0.0, [&](double sum, int32_t t) { return sum + weight(t); });
  };
  // The threshold is a fraction of the sum in descending order. A sum in any other order needs no sorting, has a
  // relative difference of at most about 2 n epsilon, and decides the token in all but very few draws.
  const double uniform = random.uniform(), approximate_threshold = uniform * sum_of_weights(order.partly_sorted());
  const double error = 4 * static_cast<double>(order.size() + 1) * std::numeric_limits<double>::epsilon();
  if (const int32_t token = token_above({approximate_threshold * (1 - error), approximate_threshold * (1 + error)});
      token >= 0)
    return token;
  order[order.size() - 1];  // sorts all tokens
  const double threshold = uniform * sum_of_weights(order.partly_sorted());
  return token_above({threshold, threshold});
}

}  // namespace mh::search
