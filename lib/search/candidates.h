// Selects the candidates for the next token from the logits of each row.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <vector>

#include "cpu/best_entries.h"

namespace mh::search {

// Limits on the candidates of a step.
struct CandidateConstraints {
  int64_t max_candidates = 1;            // maximum number of candidates per row
  std::vector<int32_t> excluded_tokens;  // tokens that are candidates only if forced
  // (R): forced token of each row, the row's only candidate; -1: no forced token. Empty: no row has a forced token.
  std::vector<int32_t> forced_tokens;
};

// Candidates in main memory.
struct Candidates {
  std::vector<double> lse;                           // (R): log-sum-exp of each row of logits, nats
  std::vector<std::vector<kernels::Entry>> entries;  // (R): candidates, descending by logit, then ascending by token
};

// Returns the candidates for logits (R, V) fp32. If the logits are on a GPU, best_candidates() computes the candidates.
// Throws Error(failed) if the distribution of a row is not finite.
Candidates candidates_of(const at::Tensor& logits, const CandidateConstraints& constraints);
// Throws Error(failed) if the log-sum-exp of a row is not finite.
void require_finite(std::span<const double> lse);

// Candidates as tensors on the device of the logits, with n = min(count, V) entries for each row.
struct BestCandidates {
  at::Tensor lse;     // (R) fp64: log-sum-exp of each row of logits, nats; not finite if the distribution is not
  at::Tensor tokens;  // (R, n) int64: descending by logit, then ascending by token
  at::Tensor logits;  // (R, n) fp32: logits of the tokens; minus infinity: the entry is not a candidate
};
// Returns the min(count, V) best candidates for logits (R, V) fp32, without waiting for the GPU. The logits of
// `excluded_tokens` are minus infinity in the result.
BestCandidates best_candidates(const at::Tensor& logits, int64_t count, const std::vector<int32_t>& excluded_tokens);

}  // namespace mh::search
