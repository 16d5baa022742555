// The two matrix products of attention, Q Kᵀ and P V, under a causal mask, on the composed path, for Tq queries and Tk
// keys. On a CPU, each block of queries skips the keys that none of its queries sees, which saves nearly half of the
// work in self-attention over long sequences.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <c10/util/flat_hash_map.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>

namespace mh::attention {

// Offset of a causal mask (Mask::causal_offset): query t sees the keys s <= t + *offset, and the entries (t, s) of
// all other keys are hidden. Empty: every query sees all keys.
using CausalOffset = std::optional<int64_t>;

// Returns q kᵀ (B, h, Tq, Tk) for q (B, h, Tq, dk) and k (B, h, Tk, dk). Hidden entries are finite but unspecified; a
// later mask must give them a gradient of exactly 0.
at::Tensor product_with_keys(const at::Tensor& q, const at::Tensor& k, CausalOffset offset);

// Returns p v (B, hv, Tq, dv) for p (B, hv, Tq, Tk), or (1, hv, Tq, Tk) shared by all batch rows, and v (B, hv, Tk,
// dv). Hidden entries of p must be exactly 0; their gradient is finite but unspecified.
at::Tensor product_with_values(const at::Tensor& p, const at::Tensor& v, CausalOffset offset);

// Implementations without autograd, for autograd functions.
namespace no_autograd {
// Returns pᵀ y (B, h, Tk, c) for p (B, h, Tq, Tk), whose hidden entries must be exactly 0, and y (B, h, Tq, c). This
// product is the gradient of the keys (p: gradient of the logits, y: queries) and of the values (p: probabilities, y:
// gradient of the head outputs; hv heads instead of h).
at::Tensor transposed_product(const at::Tensor& p, const at::Tensor& y, CausalOffset offset);
// Returns q kᵀ (B, h, Tq, Tk) without autograd.
at::Tensor product_with_keys(const at::Tensor& q, const at::Tensor& k, CausalOffset offset);
// Returns p v (B, hv, Tq, dv) without autograd, for p and v with the same number of batch rows.
at::Tensor product_with_values(const at::Tensor& p, const at::Tensor& v, CausalOffset offset);

// Number of queries in a block; in transposed_product(), the number of keys in a block. With 128, a causal product
// takes 0.7 of the time of the full product at 512 positions and 0.6 at 1024. Smaller blocks make the individual matrix
// products slower.
constexpr int64_t kPositionsPerBlock = 128;

// Calls visit(first_query, count, key_end) for each block of queries [first_query, first_query + count), whose queries
// see only keys in [0, key_end).
template <class Visit>
void for_each_query_block(int64_t num_queries, int64_t num_keys, CausalOffset offset, const Visit& visit) {
  for (int64_t first_query = 0; first_query < num_queries; first_query += kPositionsPerBlock) {
    const int64_t count = std::min(kPositionsPerBlock, num_queries - first_query);
    visit(first_query, count, offset ? std::clamp<int64_t>(first_query + count + *offset, 0, num_keys) : num_keys);
  }
}

// Reshapes (B, h, T, c) to (B h, T, c).
inline at::Tensor flatten_heads(const at::Tensor& x) {
  return x.reshape({x.size(0) * x.size(1), x.size(2), x.size(3)});
}

// Type of AutogradContext::saved_data.
using SavedAutogradData = ska::flat_hash_map<std::string, at::IValue>;
// Stores the offset in `saved` for the backward pass.
void save_offset(SavedAutogradData& saved, CausalOffset offset);
// Returns the offset that save_offset() stored.
CausalOffset load_offset(SavedAutogradData& saved);
}  // namespace no_autograd

}  // namespace mh::attention
