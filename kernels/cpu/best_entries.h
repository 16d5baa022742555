// The largest entries of a row of logits (vocabulary), and the log-sum-exp of the row, for each decoding step. Two
// passes read the whole row, and a third pass reads the few blocks of 64 entries with a large maximum. Only the results
// are sorted, and the row is not copied.
//
// Tiling: a call computes one row. The first pass holds the maximum of a block, and the second pass the sums of
// exponentials, in one vector of 16 lanes. The maxima of the blocks, and a copy of them that is partially sorted, take
// 4 * (number of blocks + 1) bytes each: 2 KiB for a vocabulary of 33278, whose row takes 130 KiB.
#pragma once

#include <cstdint>
#include <span>

namespace mh::kernels {

// A logit and its index in the row, which is the id of its token.
struct Entry {
  float logit;
  int32_t index;
};

// Fills `best` with the largest of `logits` in descending order; equal logits are ordered by index. The logits at
// excluded_indices are left out. Returns the number of entries written: best.size(), or fewer if fewer entries are
// above -inf. Writes to *lse the log-sum-exp (nats) of the whole row, including the excluded logits; *lse is not finite
// if a logit is NaN or +inf, or if all logits are -inf.
int64_t best_entries(std::span<const float> logits, std::span<const int32_t> excluded_indices, std::span<Entry> best,
                     double* lse);

}  // namespace mh::kernels
