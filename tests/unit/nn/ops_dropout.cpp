// Dropout against its definition, element by element, and the invariances that resume and micro-batches rely on.
#include <ATen/Parallel.h>

#include <catch2/catch.hpp>
#include <vector>

#include "base/random.h"
#include "fixtures/aten.h"
#include "fixtures/rounding.h"
#include "nn/ops.h"

using namespace mh;

namespace {

// Returns the index in the random stream for the element at `offset` in batch row `row` of a tensor of these sizes.
uint64_t index_of(nn::DropoutIndex dropout_index, at::IntArrayRef sizes, uint64_t row, uint64_t offset) {
  const auto size = [&](size_t axis) { return static_cast<uint64_t>(sizes[axis]); };
  if (dropout_index == nn::DropoutIndex::padded)
    return row * static_cast<uint64_t>(c10::multiply_integers(sizes.slice(1))) + offset;
  if (sizes.size() != 4) return row << 46 | offset;
  const uint64_t key = offset % size(3), query = offset / size(3) % size(2), head = offset / size(3) / size(2);
  return row << 46 | head << 36 | query << 18 | key;
}

// Returns dropout of x in double precision, element by element.
at::Tensor reference(const at::Tensor& x, double p, const nn::ForwardContext& forward_context, std::string_view stream,
                     uint32_t site) {
  RandomStream random(forward_context.seed, stream);
  at::Tensor y = x.to(at::kDouble).clone();
  auto* data = y.data_ptr<double>();
  const int64_t row_size = x.numel() / x.size(0);
  for (int64_t i = 0; i < y.numel(); ++i) {
    const uint64_t index =
        index_of(forward_context.dropout_index, x.sizes(),
                 static_cast<uint64_t>(forward_context.row_offset + i / row_size), static_cast<uint64_t>(i % row_size));
    data[i] = random.uniform(forward_context.update, site, index) < p ? 0 : data[i] / (1 - p);
  }
  return y;
}

}  // namespace

TEST_CASE("dropout of an element depends on the random number of seed, stream, update, site and index", "[ops]") {
  nn::ForwardContext forward_context{true, 7, 3, 0};
  for (const auto dropout_index : {nn::DropoutIndex::position, nn::DropoutIndex::padded})
    for (const std::vector<int64_t>& sizes : std::vector<std::vector<int64_t>>{
             {1, 1}, {3, 5}, {4, 64}, {7, 129}, {33, 4099}, {3, 5, 7}, {2, 3, 5, 4}, {3, 2, 7, 129}, {2, 1, 1, 40000}})
      for (double p : {0.1, 0.5, 0.9}) {
        forward_context.dropout_index = dropout_index;
        forward_context.row_offset = sizes[0] % 4;
        at::Tensor x = at::randn(sizes);
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

TEST_CASE("dropout by position drops the same elements of a row, whatever the padding of its micro-batch", "[ops]") {
  const nn::ForwardContext forward_context{true, 1, 9, 4, nn::DropoutIndex::position};
  const auto mask = [&](at::IntArrayRef sizes) { return nn::dropout(at::ones(sizes), 0.3, forward_context, "s", 0); };
  CHECK(at::equal(mask({3, 4, 20}), mask({3, 9, 20}).narrow(1, 0, 4)));
  CHECK(at::equal(mask({3, 2, 4, 5}), mask({3, 2, 70, 200}).narrow(2, 0, 4).narrow(3, 0, 5)));
}

TEST_CASE("dropout by position refuses tensors whose indices would collide", "[ops]") {
  const auto range_of = [](std::vector<int64_t> sizes, int64_t row_offset, nn::DropoutIndex dropout_index) {
    return nn::dropout_range_of(sizes, 0.3, {true, 1, 9, row_offset, dropout_index}, "s", 0);
  };
  const auto position = nn::DropoutIndex::position, padded = nn::DropoutIndex::padded;
  CHECK_NOTHROW(range_of({1, 1 << 10, 1 << 18, 1 << 18}, (1 << 18) - 1, position));
  CHECK_THROWS_WITH(range_of({1, 2, 3, (1 << 18) + 1}, 0, position), Catch::Contains("262144 keys; found 262145"));
  CHECK_THROWS_WITH(range_of({1, 2, (1 << 18) + 1, 3}, 0, position), Catch::Contains("262144 queries"));
  CHECK_THROWS_WITH(range_of({1, 1025, 3, 3}, 0, position), Catch::Contains("1024 heads"));
  CHECK_THROWS_WITH(range_of({2, 3}, (1 << 18) - 1, position), Catch::Contains("rows of a batch; found 262145"));
  CHECK_NOTHROW(range_of({2, 1025, 3, (1 << 18) + 1}, 1 << 18, padded));
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
