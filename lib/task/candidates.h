// What a search may go on with from each row of logits.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <vector>

#include "cpu/best_entries.h"

namespace mh::task {

struct Wanted {
  int64_t count = 1;            // of each row, at most
  std::vector<int32_t> never;   // no candidates
  std::vector<int32_t> forced;  // of each row its only candidate, or -1: any; empty: any in all rows
};

struct Candidates {
  std::vector<double> log_sums;                   // (R): log p = logit - log_sum
  std::vector<std::vector<kernels::Entry>> rows;  // (R), likeliest first, of equal ones the smaller token first
};

// logits (R, V) fp32. On a CPU in one look at each row; on another device by its own operations, where which of equal
// logits are the `count` largest is the device's choice. Error(failed) where a row's distribution is not finite.
Candidates candidates_of(const at::Tensor& logits, const Wanted& wanted);

}  // namespace mh::task
