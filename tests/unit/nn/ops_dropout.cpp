// Dropout against its definition, element by element, and the invariances that resume and micro-batches rely on.
#include <ATen/Parallel.h>

#include <catch2/catch.hpp>

#include "base/random.h"
#include "fixtures/aten.h"
#include "fixtures/rounding.h"
#include "nn/ops.h"

using namespace mh;

namespace {

// Returns dropout of x in double precision, element by element.
at::Tensor reference(const at::Tensor& x, double p, const nn::ForwardContext& forward_context, std::string_view stream,
                     uint32_t site) {
  RandomStream random(forward_context.seed, stream);
  at::Tensor y = x.to(at::kDouble).clone();
  auto* data = y.data_ptr<double>();
  auto row_size = static_cast<uint64_t>(x.numel() / x.size(0));
  for (int64_t i = 0; i < y.numel(); ++i) {
    auto position = static_cast<uint64_t>(forward_context.row_offset) * row_size + static_cast<uint64_t>(i);
    data[i] = random.uniform(forward_context.update, site, position) < p ? 0 : data[i] / (1 - p);
  }
  return y;
}

}  // namespace

TEST_CASE("dropout of an element depends on the random number of seed, stream, update, site and position", "[ops]") {
  nn::ForwardContext forward_context{true, 7, 3, 0};
  for (auto [rows, width] : {std::pair<int64_t, int64_t>{1, 1}, {3, 5}, {4, 64}, {7, 129}, {33, 4099}})
    for (double p : {0.1, 0.5, 0.9}) {
      forward_context.row_offset = rows % 4;
      at::Tensor x = at::randn({rows, width});
      at::Tensor expected = reference(x, p, forward_context, "attention.output", 2);
      at::Tensor y = nn::dropout(x, p, forward_context, "attention.output", 2);
      CHECK(at::equal(y.ne(0), expected.ne(0)));
      // The factor 1 / (1 - p) and its product with an element are rounded.
      CHECK(at::allclose(y.to(at::kDouble), expected, rounding::bound(at::kFloat, at::kDouble, 2, 1), 0));
      at::Tensor bf16_output = nn::dropout(x.to(at::kBFloat16), p, forward_context, "attention.output", 2);
      CHECK(bf16_output.scalar_type() == at::kBFloat16);
      CHECK(at::equal(bf16_output.ne(0), expected.ne(0)));
      at::Tensor fp64_output = nn::dropout(x.to(at::kDouble), p, forward_context, "attention.output", 2);
      // The factor 1 / (1 - p) is fp32.
      CHECK(at::allclose(fp64_output, expected, rounding::bound(at::kFloat, at::kDouble, 1, 1), 0));
    }
}

TEST_CASE("dropout is the identity in evaluation and with p = 0, and accepts empty tensors", "[ops]") {
  at::Tensor x = at::randn({2, 3});
  CHECK(at::equal(nn::dropout(x, 0.5, {false, 1, 0, 0}, "s", 0), x));
  CHECK(at::equal(nn::dropout(x, 0, {true, 1, 0, 0}, "s", 0), x));
  CHECK(nn::dropout(at::empty({0, 3}), 0.5, {true, 1, 0, 0}, "s", 0).numel() == 0);
}

TEST_CASE("dropout is bit-identical for any number of threads and micro-batches; masks of sites and streams differ",
          "[ops]") {
  nn::ForwardContext forward_context{true, 1, 9, 4};
  at::Tensor x = at::randn({6, 50000});
  at::Tensor batch_output = nn::dropout(x, 0.3, forward_context, "s", 0);
  int num_threads = at::get_num_threads();
  at::set_num_threads(1);
  CHECK(at::equal(nn::dropout(x, 0.3, forward_context, "s", 0), batch_output));
  at::set_num_threads(num_threads);
  nn::ForwardContext micro_batch_context = forward_context;
  micro_batch_context.row_offset += 2;
  CHECK(at::equal(nn::dropout(x.narrow(0, 2, 4), 0.3, micro_batch_context, "s", 0), batch_output.narrow(0, 2, 4)));
  CHECK_FALSE(at::equal(nn::dropout(x, 0.3, forward_context, "s", 1).ne(0), batch_output.ne(0)));
  CHECK_FALSE(at::equal(nn::dropout(x, 0.3, forward_context, "t", 0).ne(0), batch_output.ne(0)));
}

TEST_CASE("the gradient of dropout has the mask of the forward pass", "[ops]") {
  nn::ForwardContext forward_context{true, 5, 2, 1};
  at::Tensor x = at::randn({3, 1000}).requires_grad_();
  at::Tensor y = nn::dropout(x, 0.25, forward_context, "s", 3);
  at::Tensor dy = at::randn_like(y);
  y.backward(dy);
  CHECK(at::equal(x.grad(), nn::dropout(dy, 0.25, forward_context, "s", 3)));
}

TEST_CASE("dropout of an infinity is 0, not NaN", "[ops]") {
  at::Tensor x = at::full({1, 256}, std::numeric_limits<float>::infinity());
  at::Tensor y = nn::dropout(x, 0.5, {true, 1, 0, 0}, "s", 0);
  CHECK_FALSE(y.isnan().any().item<bool>());
  CHECK(y.eq(0).any().item<bool>());
}
