#include "data/blended_order.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/error.h"
#include "base/text.h"

namespace mh::data {

namespace {

// Adds one to each of the counts with the largest remainders, in descending order of the remainders (of equal
// remainders, the first comes first), until the counts sum to `total`.
template <class Remainder>
void add_missing(std::vector<int64_t>& counts, const std::vector<Remainder>& remainders, int64_t total) {
  std::vector<size_t> order(counts.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return remainders[a] > remainders[b]; });
  const int64_t num_missing = total - std::accumulate(counts.begin(), counts.end(), int64_t{0});
  for (int64_t i = 0; i < num_missing; ++i) ++counts[order[static_cast<size_t>(i)]];
}

}  // namespace

std::vector<double> normalise_weights(const std::vector<double>& weights) {
  // Divides by the largest weight first, since the sum of large weights may overflow.
  const double max_weight = *std::max_element(weights.begin(), weights.end());
  std::vector<double> shares;
  double sum = 0;
  for (const double weight : weights) {
    shares.push_back(weight / max_weight);
    sum += shares.back();
  }
  for (double& share : shares) share /= sum;
  return shares;
}

Shares::Shares(const std::vector<double>& weights) {
  std::vector<double> remainders;
  for (const double share : normalise_weights(weights)) {
    // kWhole is a power of two, so the product has no rounding error, with or without fused multiply-add.
    const double exact_units = share * static_cast<double>(kWhole);
    units.push_back(static_cast<int64_t>(std::floor(exact_units)));
    remainders.push_back(exact_units - std::floor(exact_units));
  }
  add_missing(units, remainders, kWhole);
  const auto smallest = std::min_element(units.begin(), units.end());
  if (*smallest == 0)
    refuse_usage("data.weights", "for each training shard at least 2^-32 of the sum of the weights",
                 str("the weight ", shortest_decimal(weights[static_cast<size_t>(smallest - units.begin())]),
                     " of shard ", smallest - units.begin() + 1),
                 "raise this weight, or leave the shard out");
}

std::vector<int64_t> Shares::divide(int64_t total) const {
  std::vector<int64_t> counts, remainders;
  for (const int64_t share : units) {
    counts.push_back(share * total / kWhole);
    remainders.push_back(share * total % kWhole);
  }
  add_missing(counts, remainders, total);
  return counts;
}

BlendedOrder::BlendedOrder(const Shares& shares)
    : shares_(shares), deficits_(shares.units.size(), 0), counts_(shares.units.size(), 0) {}

size_t BlendedOrder::next_shard() const {
  const std::vector<int64_t>& units = shares_.units;
  size_t shard = 0;
  for (size_t i = 1; i < units.size(); ++i)
    if (deficits_[i] + units[i] > deficits_[shard] + units[shard]) shard = i;
  return shard;
}

const std::vector<int64_t>& BlendedOrder::counts_before(int64_t position) {
  if (position < position_) {
    std::fill(deficits_.begin(), deficits_.end(), 0);
    std::fill(counts_.begin(), counts_.end(), 0);
    position_ = 0;
  }
  for (; position_ < position; ++position_) {
    const size_t shard = next_shard();
    for (size_t i = 0; i < counts_.size(); ++i) deficits_[i] += shares_.units[i];
    deficits_[shard] -= Shares::kWhole;
    ++counts_[shard];
  }
  return counts_;
}

BlendedOrder::Draw BlendedOrder::at(int64_t position) {
  counts_before(position);
  const size_t shard = next_shard();
  return {shard, counts_[shard]};
}

}  // namespace mh::data
