// The candidate tokens of a search for each row of logits.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <vector>

#include "cpu/best_entries.h"

namespace mh::search {

struct Constraints {
  int64_t count = 1;              // maximum number of candidates of a row
  std::vector<int32_t> excluded;  // tokens that are no candidates
  std::vector<int32_t> forced;    // the only candidate of each row, or -1: any; empty: any in all rows
};

struct Candidates {
  std::vector<double> log_sums;                   // (R): log p = logit - log_sum
  std::vector<std::vector<kernels::Entry>> rows;  // (R), likeliest first; among equal ones the smaller token first
};

// Returns the candidates of logits (R, V) fp32; on a GPU through best_of(). Throws Error(failed) if the distribution of
// a row is not finite.
Candidates candidates_of(const at::Tensor& logits, const Constraints& constraints);
// Throws Error(failed) if the log-sum-exp of a row is not finite.
void require_finite(std::span<const double> log_sums);

// Candidates computed by tensor operations on any device, without synchronisation. All rows have `count` of them.
struct Best {
  at::Tensor log_sums;  // (R) fp64, not finite if the distribution is not
  at::Tensor tokens;    // (R, count) int64, likeliest first; among equal ones the smaller token first
  at::Tensor logits;    // (R, count) fp32; minus infinity: no candidate
};
// Returns the `count` best of logits (R, V) fp32, or V if that is less; `excluded` tokens are no candidates.
Best best_of(const at::Tensor& logits, int64_t count, const std::vector<int32_t>& excluded);

}  // namespace mh::search
