// How spread out attention is: of a row P of probabilities over keys,
//
//   H(P) = -Σ_s P_s ln P_s, nats,   and its share H(P) / ln(number of visible keys): 1 where it is even.
//
// Where heads are mixed, a row may hold negative numbers and need not sum to 1: then P_s is |P_s| / Σ |P_s|, which
// changes no row of probabilities. A row of zeros has no entropy and does not count.
#pragma once

#include <ATen/core/Tensor.h>

namespace mh::analysis {

// p (…, n) -> (…) fp64; NaN for a row of zeros.
at::Tensor entropy_of_rows(const at::Tensor& p);

// Means over queries, head by head.
class EntropyMeans {
 public:
  // p (B, h, Tq, Tk), all of whose queries are real. Visible are the keys to which some head of the layer gives
  // anything.
  void add(const at::Tensor& p);
  at::Tensor entropy() const;  // (h) fp64
  at::Tensor share() const;    // (h) fp64, over the queries that see more than one key
 private:
  at::Tensor sums_, shares_;              // (h)
  at::Tensor queries_, queries_of_many_;  // (h), how many
};

}  // namespace mh::analysis
