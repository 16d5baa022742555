// The autograd function of split_projection().
#include "attention/fused/split_projection.h"

#include <torch/csrc/autograd/custom_function.h>

#include <vector>

#include "attention/gated_combiner.h"
#include "attention/row_layout.h"
#include "nn/aten.h"

namespace mh::attention {

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct SplitProjection : torch::autograd::Function<SplitProjection> {
  static variable_list forward(AutogradContext* context, const at::Tensor& qkv, const ProjectionSizes& s) {
    context->saved_data["sizes"] = qkv.sizes().vec();
    const int64_t query_width = s.q_heads * s.key_size, key_width = s.k_heads * s.key_size;
    auto slice = [&](int64_t offset, int64_t h, int64_t size) {
      return qkv.narrow(-1, offset, h * size).view({qkv.size(0), qkv.size(1), h, size}).transpose(1, 2);
    };
    return {slice(0, s.q_heads, s.key_size), slice(query_width, s.k_heads, s.key_size),
            slice(query_width + key_width, s.v_heads, s.value_size)};
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    // If the gradients are adjacent slices of one tensor in the layout of the projection, this tensor is the gradient
    // of the projection.
    if (are_adjacent_slices(gradients)) {
      const auto sizes = context->saved_data["sizes"].toIntVector();
      return {gradients[0].as_strided(sizes, {sizes[1] * sizes[2], sizes[2], 1}, gradients[0].storage_offset()), {}};
    }
    std::vector<at::Tensor> joined_gradients;
    for (const at::Tensor& g : gradients) joined_gradients.push_back(join_heads(g));
    return {nn::cat(joined_gradients, -1), {}};
  }
};

}  // namespace

std::array<at::Tensor, 3> split_projection(const at::Tensor& qkv, const ProjectionSizes& sizes) {
  auto heads = SplitProjection::apply(qkv, sizes);
  return {heads[0], heads[1], heads[2]};
}

}  // namespace mh::attention
