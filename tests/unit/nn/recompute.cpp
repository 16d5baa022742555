// Recomputation of activations in the backward pass.
#include "nn/recompute.h"

#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <catch2/catch.hpp>

#include "fixtures/aten.h"

using namespace mh;

namespace {

at::Tensor leaf(uint64_t seed) {
  at::manual_seed(seed);
  return at::randn({4, 4}).set_requires_grad(true);
}

// Counts the calls of a hook on a leaf.
struct CountingHook : torch::autograd::PostAccumulateGradHook {
  explicit CountingHook(int& count) : num_calls(count) {}
  void operator()(const torch::autograd::Variable& /*leaf*/) override { ++num_calls; }
  int& num_calls;
};

}  // namespace

TEST_CASE("recompute: result and gradients with and without recomputation are equal bit for bit") {
  std::vector<std::vector<at::Tensor>> results;
  for (const bool recomputes : {false, true}) {
    const at::Tensor x = leaf(1), w = leaf(2), z = leaf(3), unused = leaf(4);
    at::Tensor y = x;
    for (int layer = 0; layer < 3; ++layer) {
      const nn::RecomputedFunction function = [&w](const std::vector<at::Tensor>& inputs, bool) {
        return at::tanh(at::matmul(inputs[0], w)) + inputs[0] * inputs[1].sigmoid();
      };
      y = recomputes ? nn::recompute({y, z}, function) : function({y, z}, false);
    }
    y.square().sum().backward();
    CHECK_FALSE(unused.grad().defined());
    results.push_back({y.detach(), x.grad(), w.grad(), z.grad()});
  }
  for (size_t i = 0; i < results[0].size(); ++i) CHECK(at::equal(results[1][i], results[0][i]));
}

TEST_CASE("recompute: the function runs once in the forward pass and once in the backward pass") {
  const at::Tensor x = leaf(1);
  std::vector<bool> calls;
  const at::Tensor y = nn::recompute({x}, [&](const std::vector<at::Tensor>& inputs, bool is_recomputation) {
    calls.push_back(is_recomputation);
    return inputs[0].exp();
  });
  CHECK(calls == std::vector<bool>{false});
  y.sum().backward();
  CHECK(calls == std::vector<bool>{false, true});
  CHECK(at::equal(x.grad(), x.detach().exp()));
}

TEST_CASE("recompute: a leaf that several functions read accumulates its gradient once") {
  const at::Tensor x = leaf(1), w = leaf(2);
  int num_calls = 0;
  torch::autograd::impl::set_post_acc_grad_hooks(w, std::make_unique<CountingHook>(num_calls));
  at::Tensor y = x;
  for (int layer = 0; layer < 3; ++layer)
    y = nn::recompute({y}, [&w](const std::vector<at::Tensor>& inputs, bool) { return at::matmul(inputs[0], w); });
  y.sum().backward();
  CHECK(num_calls == 1);
}

TEST_CASE("recompute: an input without gradient receives none, and leaves still receive theirs") {
  at::manual_seed(1);
  const at::Tensor x = at::randn({4, 4}), w = leaf(2);
  const nn::RecomputedFunction function = [&w](const std::vector<at::Tensor>& inputs, bool) {
    return at::matmul(inputs[0], w).tanh();
  };
  nn::recompute({x}, function).sum().backward();
  const at::Tensor gradient = w.grad().clone();
  w.mutable_grad() = at::Tensor();
  function({x}, false).sum().backward();
  CHECK(at::equal(gradient, w.grad()));
  CHECK_FALSE(x.grad().defined());
}

TEST_CASE("recompute: without gradients the result has no graph") {
  const at::Tensor w = leaf(2);
  int num_calls = 0;
  const nn::RecomputedFunction function = [&](const std::vector<at::Tensor>& inputs, bool) {
    ++num_calls;
    return at::matmul(inputs[0], w);
  };
  {
    const c10::NoGradGuard no_gradient;
    CHECK_FALSE(nn::recompute({at::ones({4, 4})}, function).requires_grad());
  }
  w.set_requires_grad(false);
  CHECK_FALSE(nn::recompute({at::ones({4, 4})}, function).requires_grad());
  CHECK(num_calls == 2);
}
