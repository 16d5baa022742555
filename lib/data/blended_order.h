// The order in which a run draws from several shards, so that the fraction of draws from each shard follows its weight
// at every moment.
//
// Draw k (counted from 0) comes from the shard with the largest deficit w_i · (k + 1) − n_i, where w_i is the fraction
// of the draws for shard i (the w_i sum to 1), and n_i the number of earlier draws from shard i; of equal deficits, the
// first shard. Source: the blended datasets of Megatron-LM (build_blending_indices in
// megatron/core/datasets/helpers.cpp). Megatron stores the order of all draws; here a draw is computed from the
// deficits, and the order has no end. Shares and deficits are integers, so that every machine and compiler draws in the
// same order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace mh::data {

// Returns weights above 0 divided by their sum.
std::vector<double> normalise_weights(const std::vector<double>& weights);

// The fractions of the draws for several shards, in units of 1 / kWhole; they sum to kWhole.
struct Shares {
  static constexpr int64_t kWhole = int64_t{1} << 32;
  // Rounds normalised weights to units by the method of the largest remainder. Throws Error(usage) about data.weights
  // for a fraction that is rounded to 0. `weights`: one number above 0 for each shard.
  explicit Shares(const std::vector<double>& weights);
  // Divides `total` things, at most 2^30, among the shards by the method of the largest remainder; of equal remainders,
  // the first. The result sums to `total`.
  std::vector<int64_t> divide(int64_t total) const;

  std::vector<int64_t> units;
};

// A pure function of the position of a draw, which remembers the last position: a request for a later position costs
// one step per draw in between, and a request for an earlier position starts from the first draw.
class BlendedOrder {
 public:
  struct Draw {
    size_t shard = 0;
    int64_t index = 0;  // number of earlier draws from the shard
    bool operator==(const Draw&) const = default;
  };

  explicit BlendedOrder(const Shares& shares);
  Draw at(int64_t position);
  // Returns the number of draws from each shard at the positions [0, position).
  const std::vector<int64_t>& counts_before(int64_t position);

 private:
  size_t next_shard() const;

  Shares shares_;
  std::vector<int64_t> deficits_;  // w_i · position_ − n_i of each shard, in units of 1 / Shares::kWhole
  std::vector<int64_t> counts_;    // n_i: number of draws from each shard before position_
  int64_t position_ = 0;
};

}  // namespace mh::data
