// The relative shift (Dai et al. 2019, appendix B) by blocks of queries. The `count` queries [t, t + count) of a block
// see `key_end` keys and need key_end + count - 1 distances. The products of the queries with the embeddings of these
// distances are a matrix (count, key_end + count - 1), in which the product for query t + i and key s is in column
// count - 1 - i + s. The shifted matrix (count, key_end) is a view of this matrix that begins at element count - 1 and
// has the row stride key_end + count - 2, one less than the number of columns. So the shift copies nothing, and the
// view is added to the logits. Keys that no query of a block sees have no position term.
#include "attention/methods/relative/relative_product.h"

#include <ATen/ops/bmm.h>
#include <torch/csrc/autograd/custom_function.h>

namespace mh::attention {

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Returns the shifted view (N, count, key_end) of `products_by_distance` (N, count, key_end + count - 1).
at::Tensor relative_shift(const at::Tensor& products_by_distance, int64_t key_end) {
  const int64_t n = products_by_distance.size(0), count = products_by_distance.size(1),
                width = products_by_distance.size(2);
  return products_by_distance.as_strided({n, count, key_end}, {count * width, width - 1, 1}, count - 1);
}

// Returns r repeated for each batch row, (B h, D, c), for r (h, D, c), or (1, D, c) shared by all heads.
at::Tensor expand_to_batch(const at::Tensor& r, int64_t batch_size, int64_t num_heads) {
  if (r.size(0) == 1) return r.expand({batch_size * num_heads, r.size(1), r.size(2)});
  return r.unsqueeze(0)
      .expand({batch_size, num_heads, r.size(1), r.size(2)})
      .reshape({batch_size * num_heads, r.size(1), r.size(2)});
}

// Calls visit(t, count, key_end, first_row, width) for each block of queries [t, t + count) that sees a key: the
// queries see only keys in [0, key_end), and the embeddings of their distances are the rows [first_row, first_row +
// width) of r.
template <class Visit>
void for_each_visible_query_block(int64_t num_queries, int64_t num_keys, CausalOffset offset, const Visit& visit) {
  no_autograd::for_each_query_block(num_queries, num_keys, offset, [&](int64_t t, int64_t count, int64_t key_end) {
    if (key_end > 0) visit(t, count, key_end, num_queries - t - count, key_end + count - 1);
  });
}

struct RelativeProduct : torch::autograd::Function<RelativeProduct> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& k, const at::Tensor& y,
                            const at::Tensor& r, CausalOffset offset) {
    context->save_for_backward({x, k, y, r});
    no_autograd::save_offset(context->saved_data, offset);
    at::Tensor logits = no_autograd::product_with_keys(x, k, offset);
    const at::Tensor flat_y = no_autograd::flatten_heads(y),
                     embeddings = expand_to_batch(r, x.size(0), x.size(1)).transpose(1, 2);
    const at::Tensor flat_logits = logits.flatten(0, 1);
    for_each_visible_query_block(
        x.size(2), k.size(2), offset, [&](int64_t t, int64_t count, int64_t key_end, int64_t first_row, int64_t width) {
          const at::Tensor products_by_distance =
              at::bmm(flat_y.narrow(1, t, count), embeddings.narrow(2, first_row, width));
          flat_logits.narrow(1, t, count).narrow(2, 0, key_end).add_(relative_shift(products_by_distance, key_end));
        });
    return logits;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto saved = context->get_saved_variables();
    const at::Tensor &x = saved[0], &k = saved[1], &y = saved[2], &r = saved[3], &grad_logits = gradients[0];
    const CausalOffset offset = no_autograd::load_offset(context->saved_data);
    at::Tensor dx, dk, dy, dr;
    if (context->needs_input_grad(0)) dx = no_autograd::product_with_values(grad_logits, k, offset);
    if (context->needs_input_grad(1)) dk = no_autograd::transposed_product(grad_logits, x, offset);
    const bool needs_y = context->needs_input_grad(2), needs_r = context->needs_input_grad(3);
    if (needs_y || needs_r) {
      const int64_t batch_size = x.size(0), num_heads = x.size(1);
      const at::Tensor flat_grad_logits = no_autograd::flatten_heads(grad_logits),
                       flat_y = no_autograd::flatten_heads(y), embeddings = expand_to_batch(r, batch_size, num_heads);
      if (needs_y) dy = at::zeros(flat_y.sizes(), y.options());
      if (needs_r) dr = at::zeros(embeddings.sizes(), r.options());
      for_each_visible_query_block(
          x.size(2), k.size(2), offset,
          [&](int64_t t, int64_t count, int64_t key_end, int64_t first_row, int64_t width) {
            const at::Tensor products_by_distance =
                at::zeros({flat_grad_logits.size(0), count, width}, grad_logits.options());
            relative_shift(products_by_distance, key_end)
                .copy_(flat_grad_logits.narrow(1, t, count).narrow(2, 0, key_end));
            if (needs_y)
              dy.narrow(1, t, count).copy_(at::bmm(products_by_distance, embeddings.narrow(1, first_row, width)));
            if (needs_r)
              dr.narrow(1, first_row, width).baddbmm_(products_by_distance.transpose(1, 2), flat_y.narrow(1, t, count));
          });
      if (needs_y) dy = dy.view(y.sizes());
      if (needs_r) {
        dr = dr.view({batch_size, num_heads, r.size(1), r.size(2)}).sum(0);
        if (r.size(0) == 1) dr = dr.sum(0, true);
      }
    }
    return {dx, dk, dy, dr, {}};
  }
};

}  // namespace

int64_t num_distances(int64_t num_queries, int64_t num_keys, CausalOffset offset) {
  int64_t num_rows = 1;
  for_each_visible_query_block(num_queries, num_keys, offset,
                               [&](int64_t, int64_t, int64_t, int64_t first_row, int64_t width) {
                                 num_rows = std::max(num_rows, first_row + width);
                               });
  return num_rows;
}

at::Tensor relative_product(const at::Tensor& x, const at::Tensor& k, const at::Tensor& y, const at::Tensor& r,
                            CausalOffset offset) {
  return RelativeProduct::apply(x, k, y, r, offset);
}

}  // namespace mh::attention
