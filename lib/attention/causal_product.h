// The two products of attention that its causal mask makes triangular, on the composed path: entries that no query may
// see are not computed, which is nearly half of the work where a square is long.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <c10/util/flat_hash_map.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>

namespace mh::attention {

// Mask::causal_offset(): of query t, keys s > t + *offset count for nothing. Undefined: all count.
using CausalOffset = std::optional<int64_t>;

// q (B, h, T, dk), k (B, h, S, dk) -> q kᵀ (B, h, T, S). Entries that the offset hides are finite numbers; a later mask
// must give them a gradient of exactly 0.
at::Tensor product_with_keys(const at::Tensor& q, const at::Tensor& k, CausalOffset offset);

// p (B, h, T, S), or (1, h, T, S) for all rows, v (B, h, S, dv) -> p v (B, h, T, dv). p is
// exactly 0 where the offset hides it, and has some finite gradient there.
at::Tensor product_with_values(const at::Tensor& p, const at::Tensor& v, CausalOffset offset);

// The same two, and the gradient of the second operand of each, without autograd; and what they are made of.
namespace plain {
// p (…, T, S), y (…, T, d) -> pᵀ y (…, S, d)
at::Tensor transposed_product(const at::Tensor& p, const at::Tensor& y, CausalOffset offset);
at::Tensor product_with_keys(const at::Tensor& q, const at::Tensor& k, CausalOffset offset);
at::Tensor product_with_values(const at::Tensor& p, const at::Tensor& v, CausalOffset offset);

// Queries of one piece of work: at 512 positions the triangle then costs 0.7 of the square's time, at 1024 0.6; smaller
// products are slower by themselves.
constexpr int64_t kBlock = 128;

// visit(first query, number of them, keys that any of them may see) for all blocks of queries.
template <class Visit>
void each_block(int64_t queries, int64_t keys, CausalOffset offset, const Visit& visit) {
  for (int64_t t = 0; t < queries; t += kBlock) {
    const int64_t count = std::min(kBlock, queries - t);
    visit(t, count, offset ? std::clamp<int64_t>(t + count + *offset, 0, keys) : keys);
  }
}

// (B, h, T, c) -> (B h, T, c)
inline at::Tensor flat(const at::Tensor& x) { return x.reshape({x.size(0) * x.size(1), x.size(2), x.size(3)}); }

// An offset among what an autograd function keeps.
using Saved = ska::flat_hash_map<std::string, at::IValue>;
void keep(Saved& saved, CausalOffset offset);
CausalOffset kept(Saved& saved);
}  // namespace plain

}  // namespace mh::attention
