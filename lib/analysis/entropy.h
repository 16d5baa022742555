// Entropy of attention rows: for a row P of probabilities over keys,
//
//   H(P) = -Σ_s P_s ln P_s, nats,   and the normalised entropy H(P) / ln(number of visible keys), 1 for uniform rows.
//
// Rows of mixed heads may have negative entries, and rows of mixed heads or with a sink need not sum to 1. Therefore
// |P_s| / Σ |P_s| replaces P_s, which leaves probabilities unchanged. Rows of zeros have no entropy and are left out of
// means.
#pragma once

#include <ATen/core/Tensor.h>

namespace mh::analysis {

// Returns the entropies (…), fp64, of rows p (…, n); NaN for a row of zeros.
at::Tensor entropy_of_rows(const at::Tensor& p);

// Entropy of each head, averaged over queries.
class EntropyMeans {
 public:
  // Adds the rows of p (B, h, Tq, Tk), where h is the number of score heads or of value heads. p must not contain
  // padding queries. A key counts as visible to a query if any head of the layer gives the key a nonzero weight.
  void add(const at::Tensor& p) { add_sums(sums_over_queries(p)); }
  // Returns four sums over the queries of each batch row of p, (B, 4, h) fp64 on the CPU, which add_sums() adds: the
  // entropies, the number of entropies, the normalised entropies, and the number of normalised entropies.
  static at::Tensor sums_over_queries(const at::Tensor& p);
  void add_sums(const at::Tensor& sums);
  at::Tensor entropy() const;             // (h) fp64
  at::Tensor normalised_entropy() const;  // (h) fp64, mean over queries with more than one visible key
 private:
  at::Tensor sums_, normalised_sums_;                // (h)
  at::Tensor num_queries_, num_normalised_queries_;  // (h): numbers of queries in sums_ and normalised_sums_
};

}  // namespace mh::analysis
