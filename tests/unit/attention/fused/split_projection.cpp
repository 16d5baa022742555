// Splitting of a joint projection into queries, keys and values, and the gradient of the joint projection.
#include "attention/fused/split_projection.h"

#include <catch2/catch.hpp>

#include "fixtures/aten.h"

using namespace mh;

TEST_CASE("split_projection concatenates separately allocated gradients of q, k and v", "[attention]") {
  constexpr attention::ProjectionSizes kSizes{.q_heads = 2, .k_heads = 1, .v_heads = 3, .key_size = 3, .value_size = 4};
  at::Tensor joint_projection = at::randn({2, 5, 2 * 3 + 1 * 3 + 3 * 4}).requires_grad_();
  auto qkv = attention::split_projection(joint_projection, kSizes);
  (qkv[0].sum() + 2 * qkv[1].sum() + 3 * qkv[2].sum()).backward();
  at::Tensor expected = nn::cat({at::full({6}, 1.0F), at::full({3}, 2.0F), at::full({12}, 3.0F)}).expand({2, 5, 21});
  CHECK(at::equal(joint_projection.grad(), expected));
  // The output depends only on `k`, so the gradients of `q` and `v` are zero.
  joint_projection.mutable_grad() = at::Tensor();
  attention::split_projection(joint_projection, kSizes)[1].sum().backward();
  CHECK(
      at::equal(joint_projection.grad(), nn::cat({at::zeros({6}), at::ones({3}), at::zeros({12})}).expand({2, 5, 21})));
}
