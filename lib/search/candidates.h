// What a search may go on with from each row of logits.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <vector>

#include "cpu/best_entries.h"

namespace mh::search {

struct Constraints {
  int64_t count = 1;            // of each row, at most
  std::vector<int32_t> banned;  // no candidates
  std::vector<int32_t> forced;  // of each row its only candidate, or -1: any; empty: any in all rows
};

struct Candidates {
  std::vector<double> log_sums;                   // (R): log p = logit - log_sum
  std::vector<std::vector<kernels::Entry>> rows;  // (R), likeliest first, of equal ones the smaller token first
};

// logits (R, V) fp32; on another device than a CPU through best_of(). Error(failed) where a row's distribution is not
// finite.
Candidates candidates_of(const at::Tensor& logits, const Constraints& constraints);
// Of the log-sums of some rows.
void require_finite(std::span<const double> log_sums);

// The same by operations on tensors, on any device, which the host does not wait for. All are there.
struct Best {
  at::Tensor log_sums;  // (R) fp64, not finite where the distribution is not
  at::Tensor tokens;    // (R, count) int64, likeliest first, of equal ones the smaller token first
  at::Tensor logits;    // (R, count) fp32; minus infinity: no candidate
};
// `count` of logits (R, V) fp32, or V where that is less; `never` are no candidates.
Best best_of(const at::Tensor& logits, int64_t count, const std::vector<int32_t>& banned);

}  // namespace mh::search
