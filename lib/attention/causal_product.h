// The two matrix products of attention, Q Kᵀ and P V, under a causal mask, on the composed path. Entries that the mask
// hides are not computed, which saves nearly half of the work if a long sequence attends to itself.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <c10/util/flat_hash_map.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>

namespace mh::attention {

// Mask::causal_offset(): query t sees keys s <= t + *offset. Empty: every query sees all keys.
using CausalOffset = std::optional<int64_t>;

// Returns q kᵀ (B, h, T, S) for q (B, h, T, dk) and k (B, h, S, dk). Entries that the offset hides are finite but
// unspecified; a later mask must give them a gradient of exactly 0.
at::Tensor product_with_keys(const at::Tensor& q, const at::Tensor& k, CausalOffset offset);

// Returns p v (B, h, T, dv) for p (B, h, T, S), or (1, h, T, S) shared by all rows of the batch, and v (B, h, S, dv). p
// must be exactly 0 where the offset hides it; its gradient there is finite but unspecified.
at::Tensor product_with_values(const at::Tensor& p, const at::Tensor& v, CausalOffset offset);

// The same products, and the gradient of the second operand of each, without autograd; and their building blocks.
namespace plain {
// Returns pᵀ y (…, S, d) for p (…, T, S) and y (…, T, d).
at::Tensor transposed_product(const at::Tensor& p, const at::Tensor& y, CausalOffset offset);
at::Tensor product_with_keys(const at::Tensor& q, const at::Tensor& k, CausalOffset offset);
at::Tensor product_with_values(const at::Tensor& p, const at::Tensor& v, CausalOffset offset);

// Queries per block. At 512 positions a causal product then takes 0.7 of the time of the full product, at 1024 0.6.
// Smaller blocks make the individual products slower.
constexpr int64_t kBlock = 128;

// Calls visit(first query, number of queries, number of keys that any of them sees) for each block of queries.
template <class Visit>
void each_block(int64_t queries, int64_t keys, CausalOffset offset, const Visit& visit) {
  for (int64_t t = 0; t < queries; t += kBlock) {
    const int64_t count = std::min(kBlock, queries - t);
    visit(t, count, offset ? std::clamp<int64_t>(t + count + *offset, 0, keys) : keys);
  }
}

// Reshapes (B, h, T, c) to (B h, T, c).
inline at::Tensor flat(const at::Tensor& x) { return x.reshape({x.size(0) * x.size(1), x.size(2), x.size(3)}); }

// save_offset() saves an offset in the saved_data of an autograd context, saved_offset() restores it.
using Saved = ska::flat_hash_map<std::string, at::IValue>;
void save_offset(Saved& saved, CausalOffset offset);
CausalOffset saved_offset(Saved& saved);
}  // namespace plain

}  // namespace mh::attention
