// Implements the causal products by blocks of queries on a CPU, with an autograd function for each product.
#include "attention/causal_product.h"

#include <ATen/ops/bmm.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>

namespace mh::attention {

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Returns whether products of blocks are faster than one product of all queries and keys.
bool uses_blocks(const at::Tensor& x, int64_t num_queries, int64_t num_keys, CausalOffset offset) {
  return offset && x.is_cpu() && x.numel() > 0 && num_queries > no_autograd::kPositionsPerBlock &&
         *offset + no_autograd::kPositionsPerBlock < num_keys;
}

}  // namespace

namespace no_autograd {

at::Tensor product_with_keys(const at::Tensor& q, const at::Tensor& k, CausalOffset offset) {
  const int64_t num_queries = q.size(2), num_keys = k.size(2);
  if (!uses_blocks(q, num_queries, num_keys, offset)) return at::matmul(q, k.transpose(-1, -2));
  const at::Tensor a = flatten_heads(q), b = flatten_heads(k).transpose(1, 2);
  at::Tensor result = at::empty({q.size(0), q.size(1), num_queries, num_keys}, q.options()), y = result.flatten(0, 1);
  for_each_query_block(num_queries, num_keys, offset, [&](int64_t t, int64_t count, int64_t key_end) {
    const at::Tensor rows = y.narrow(1, t, count);
    at::Tensor visible_columns = rows.narrow(2, 0, key_end);
    if (key_end > 0) at::bmm_out(visible_columns, a.narrow(1, t, count), b.narrow(2, 0, key_end));
    if (key_end < num_keys) rows.narrow(2, key_end, num_keys - key_end).zero_();
  });
  return result;
}

at::Tensor product_with_values(const at::Tensor& p, const at::Tensor& v, CausalOffset offset) {
  const int64_t num_queries = p.size(2), num_keys = p.size(3);
  if (!uses_blocks(p, num_queries, num_keys, offset)) return at::matmul(p, v);
  const at::Tensor a = flatten_heads(p), b = flatten_heads(v);
  at::Tensor result = at::empty({p.size(0), p.size(1), num_queries, v.size(3)}, v.options()), y = result.flatten(0, 1);
  for_each_query_block(num_queries, num_keys, offset, [&](int64_t t, int64_t count, int64_t key_end) {
    at::Tensor rows = y.narrow(1, t, count);
    if (key_end > 0) at::bmm_out(rows, a.narrow(1, t, count).narrow(2, 0, key_end), b.narrow(1, 0, key_end));
    else rows.zero_();
  });
  return result;
}

at::Tensor transposed_product(const at::Tensor& p, const at::Tensor& y, CausalOffset offset) {
  const int64_t num_queries = p.size(2), num_keys = p.size(3);
  if (!uses_blocks(p, num_queries, num_keys, offset)) return at::matmul(p.transpose(-1, -2), y);
  const at::Tensor a = flatten_heads(p).transpose(1, 2), b = flatten_heads(y);  // (B h, Tk, Tq), (B h, Tq, c)
  at::Tensor result = at::empty({p.size(0), p.size(1), num_keys, y.size(3)}, y.options()), z = result.flatten(0, 1);
  // Only queries t >= s - offset see keys in [s, s + count).
  for (int64_t s = 0; s < num_keys; s += kPositionsPerBlock) {
    const int64_t count = std::min(kPositionsPerBlock, num_keys - s),
                  first_query = std::clamp<int64_t>(s - *offset, 0, num_queries);
    at::Tensor rows = z.narrow(1, s, count);
    if (first_query < num_queries)
      at::bmm_out(rows, a.narrow(1, s, count).narrow(2, first_query, num_queries - first_query),
                  b.narrow(1, first_query, num_queries - first_query));
    else rows.zero_();
  }
  return result;
}

void save_offset(SavedAutogradData& saved, CausalOffset offset) {
  saved["causal"] = offset.has_value();
  saved["offset"] = offset.value_or(0);
}

CausalOffset load_offset(SavedAutogradData& saved) {
  if (!saved["causal"].toBool()) return {};
  return saved["offset"].toInt();
}

}  // namespace no_autograd

namespace {

struct ProductWithKeys : torch::autograd::Function<ProductWithKeys> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& q, const at::Tensor& k, CausalOffset offset) {
    context->save_for_backward({q, k});
    no_autograd::save_offset(context->saved_data, offset);
    return no_autograd::product_with_keys(q, k, offset);
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto saved = context->get_saved_variables();
    const CausalOffset offset = no_autograd::load_offset(context->saved_data);
    at::Tensor dq, dk;
    if (context->needs_input_grad(0)) dq = no_autograd::product_with_values(gradients[0], saved[1], offset);
    if (context->needs_input_grad(1)) dk = no_autograd::transposed_product(gradients[0], saved[0], offset);
    return {dq, dk, {}};
  }
};

struct ProductWithValues : torch::autograd::Function<ProductWithValues> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& p, const at::Tensor& v, CausalOffset offset) {
    context->save_for_backward({p, v});
    no_autograd::save_offset(context->saved_data, offset);
    return no_autograd::product_with_values(p, v, offset);
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto saved = context->get_saved_variables();
    const CausalOffset offset = no_autograd::load_offset(context->saved_data);
    at::Tensor dp, dv;
    if (context->needs_input_grad(0)) dp = no_autograd::product_with_keys(gradients[0], saved[1], offset);
    if (context->needs_input_grad(1)) dv = no_autograd::transposed_product(saved[0], gradients[0], offset);
    return {dp, dv, {}};
  }
};

}  // namespace

at::Tensor product_with_keys(const at::Tensor& q, const at::Tensor& k, CausalOffset offset) {
  return ProductWithKeys::apply(q, k, offset);
}

at::Tensor product_with_values(const at::Tensor& p, const at::Tensor& v, CausalOffset offset) {
  const int64_t batch_size = v.size(0);
  if (p.size(0) == batch_size) return ProductWithValues::apply(p, v, offset);
  // All batch rows share p, so one product with the concatenated values of all rows suffices.
  const at::Tensor flat_values = v.permute({1, 2, 0, 3}).flatten(2).unsqueeze(0);  // (1, hv, Tk, B dv)
  return ProductWithValues::apply(p, flat_values, offset)
      .view({v.size(1), p.size(2), batch_size, v.size(3)})
      .permute({2, 0, 1, 3});
}

}  // namespace mh::attention
