// Distances between the queries and the keys of a forward pass: the position of a query minus the position of a key.
// Keys are divided into ranges of consecutive positions, since the positions of a memory may have gaps; within a range,
// the distance depends only on the difference of the indices of query and key.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "attention/mask.h"
#include "attention_params.h"

namespace mh::attention {

// A range of `num_keys` keys at consecutive positions. The first key has the index `first_key` and the position
// `first_position`, relative to the first query.
struct PositionRange {
  int64_t first_key, num_keys, first_position;
  // Returns the largest distance, that is, the distance between the last query and the first key of the range.
  int64_t max_distance(int64_t num_queries) const { return num_queries - 1 - first_position; }
};

// Returns the ranges of the keys of a forward pass, in increasing order of the index: one range if mask.key_positions
// is undefined.
std::vector<PositionRange> position_ranges(const Mask& mask, int64_t num_keys);

// The distances between all queries and all keys of a forward pass, including pairs that the mask hides.
struct KeyDistances {
  // Ranges that cover all keys. The distance between query t and key s is element `first_row + (Tq - 1 - t) + (s -
  // first_key)` of `distances`, for the range of s.
  std::vector<kernels::KeyRange> key_ranges;
  at::Tensor distances;  // (D) int64; in each range, Tq + num_keys - 1 distances in descending order
};

KeyDistances key_distances(const Mask& mask, int64_t num_queries, int64_t num_keys, at::Device device);

// Returns x (h, Tq, Tk) for x_by_distance (h, D): column s of row t is the value at the distance between query t and
// key s. Differentiable.
at::Tensor gather_by_distance(const at::Tensor& x_by_distance, const std::vector<kernels::KeyRange>& key_ranges,
                              int64_t num_queries);

}  // namespace mh::attention
