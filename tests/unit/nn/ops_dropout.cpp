// Dropout against its definition, one element at a time, and the properties that resume and distribution rest on.
#include <ATen/Parallel.h>

#include <catch2/catch.hpp>

#include "base/random.h"
#include "fixtures/aten.h"
#include "nn/ops.h"

using namespace mh;

namespace {

at::Tensor reference(const at::Tensor& x, double p, const nn::ForwardContext& step, std::string_view stream,
                     uint32_t site) {
  RandomStream random(step.seed, stream);
  at::Tensor y = x.to(at::kDouble).clone();
  auto* data = y.data_ptr<double>();
  auto row = static_cast<uint64_t>(x.numel() / x.size(0));
  for (int64_t i = 0; i < y.numel(); ++i) {
    auto position = static_cast<uint64_t>(step.row_offset) * row + static_cast<uint64_t>(i);
    data[i] = random.uniform(step.update, site, position) < p ? 0 : data[i] / (1 - p);
  }
  return y;
}

bool same(const at::Tensor& a, const at::Tensor& b) { return at::equal(a, b); }

}  // namespace

TEST_CASE("dropout takes its decisions from the counter", "[ops]") {
  nn::ForwardContext step{true, 7, 3, 0};
  for (auto [rows, width] : {std::pair<int64_t, int64_t>{1, 1}, {3, 5}, {4, 64}, {7, 129}, {33, 4099}})
    for (double p : {0.1, 0.5, 0.9}) {
      step.row_offset = rows % 4;
      at::Tensor x = at::randn({rows, width});
      at::Tensor expected = reference(x, p, step, "attention.output", 2);
      at::Tensor y = nn::dropout(x, p, step, "attention.output", 2);
      CHECK(same(y.ne(0), expected.ne(0)));
      CHECK(at::allclose(y.to(at::kDouble), expected, 1e-6, 1e-7));
      at::Tensor half = nn::dropout(x.to(at::kBFloat16), p, step, "attention.output", 2);
      CHECK(half.scalar_type() == at::kBFloat16);
      CHECK(same(half.ne(0), expected.ne(0)));
      at::Tensor twice = nn::dropout(x.to(at::kDouble), p, step, "attention.output", 2);
      CHECK(at::allclose(twice, expected, 1e-6, 1e-7));
    }
}

TEST_CASE("dropout is the identity where it should be", "[ops]") {
  at::Tensor x = at::randn({2, 3});
  CHECK(same(nn::dropout(x, 0.5, {false, 1, 0, 0}, "s", 0), x));
  CHECK(same(nn::dropout(x, 0, {true, 1, 0, 0}, "s", 0), x));
  CHECK(nn::dropout(at::empty({0, 3}), 0.5, {true, 1, 0, 0}, "s", 0).numel() == 0);
}

TEST_CASE("dropout has the same bits with any threads and micro-batches", "[ops]") {
  nn::ForwardContext step{true, 1, 9, 4};
  at::Tensor x = at::randn({6, 50000});
  at::Tensor whole = nn::dropout(x, 0.3, step, "s", 0);
  int threads = at::get_num_threads();
  at::set_num_threads(1);
  CHECK(same(nn::dropout(x, 0.3, step, "s", 0), whole));
  at::set_num_threads(threads);
  nn::ForwardContext second = step;
  second.row_offset += 2;
  CHECK(same(nn::dropout(x.narrow(0, 2, 4), 0.3, second, "s", 0), whole.narrow(0, 2, 4)));
  CHECK_FALSE(same(nn::dropout(x, 0.3, step, "s", 1).ne(0), whole.ne(0)));
  CHECK_FALSE(same(nn::dropout(x, 0.3, step, "t", 0).ne(0), whole.ne(0)));
}

TEST_CASE("dropout's gradient has the mask of its forward pass", "[ops]") {
  nn::ForwardContext step{true, 5, 2, 1};
  at::Tensor x = at::randn({3, 1000}).requires_grad_();
  at::Tensor y = nn::dropout(x, 0.25, step, "s", 3);
  at::Tensor dy = at::randn_like(y);
  y.backward(dy);
  CHECK(same(x.grad(), nn::dropout(dy, 0.25, step, "s", 3)));
}

TEST_CASE("a dropped infinity is zero", "[ops]") {
  at::Tensor x = at::full({1, 256}, std::numeric_limits<float>::infinity());
  at::Tensor y = nn::dropout(x, 0.5, {true, 1, 0, 0}, "s", 0);
  CHECK_FALSE(y.isnan().any().item<bool>());
  CHECK(y.eq(0).any().item<bool>());
}
