// Division of the work items of an evaluation among processes, here threads of the test program.
#include "distributed/ordered_work.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <vector>

#include "fixtures/aten.h"
#include "fixtures/processes.h"
#include "fixtures/rounding.h"
#include "nn/process_sum.h"

using namespace mh;
using distributed::Group;
using distributed::OrderedWork;

namespace {

// Adds items whose results are tensors of several types and sizes. Returns, in the order in which the process consumed
// the items, a tensor with the index of each item, followed by the results of the item. units[i]: the unit of item i.
// Appends the index of each item that the process computed to `computed`.
std::vector<at::Tensor> run_items(const Group& group, const std::vector<int64_t>& units,
                                  std::vector<size_t>& computed) {
  OrderedWork work(&group);
  std::vector<at::Tensor> consumed;
  for (size_t i = 0; i < units.size(); ++i)
    work.add(
        units[i],
        [&, i]() -> OrderedWork::Results {
          computed.push_back(i);
          const auto n = static_cast<int64_t>(i);
          if (i % 4 == 3) return {};
          return {at::full({n, 2}, 0.1 * static_cast<double>(i), at::kDouble), at::arange(n % 3, at::kLong),
                  at::full({}, static_cast<double>(i), at::kFloat)};
        },
        [&, i](const OrderedWork::Results& results) {
          consumed.push_back(at::full({}, static_cast<int64_t>(i), at::kLong));
          consumed.insert(consumed.end(), results.begin(), results.end());
        });
  work.finish();
  return consumed;
}

}  // namespace

TEST_CASE("ordered work: every process consumes the results of one process in the order of the items") {
  const std::vector<std::vector<int64_t>> cases{
      {}, {0}, {0, 1, 2, 3, 4, 5, 6}, {0, 0, 0, 1, 1, 2, 3, 3, 3, 3, 4, 5, 5}, {0, 1, 1, 1, 1, 1, 1, 1}};
  for (const auto& units : cases) {
    std::vector<size_t> all_items;
    const std::vector<at::Tensor> expected = run_items(Group(), units, all_items);
    CHECK(all_items.size() == units.size());
    for (const int size : {2, 3, 5}) {
      std::vector<std::vector<at::Tensor>> consumed(static_cast<size_t>(size));
      std::vector<std::vector<size_t>> computed(static_cast<size_t>(size));
      in_each_process(size, [&](const Group& group) {
        const auto rank = static_cast<size_t>(group.rank());
        consumed[rank] = run_items(group, units, computed[rank]);
      });
      std::vector<size_t> computed_items;
      for (size_t rank = 0; rank < consumed.size(); ++rank) {
        REQUIRE(consumed[rank].size() == expected.size());
        for (size_t i = 0; i < expected.size(); ++i) {
          CHECK(consumed[rank][i].scalar_type() == expected[i].scalar_type());
          CHECK(at::equal(consumed[rank][i], expected[i]));
        }
        for (const size_t item : computed[rank]) CHECK(units[item] % size == static_cast<int64_t>(rank));
        computed_items.insert(computed_items.end(), computed[rank].begin(), computed[rank].end());
      }
      std::sort(computed_items.begin(), computed_items.end());
      CHECK(computed_items == all_items);  // each item is computed by exactly one process
    }
  }
}

TEST_CASE("sum_over_processes: the gradient is the sum of the gradients of all processes") {
  const int size = 3;
  // Process r has x_r and the loss (weights_r · Σ_s x_s²), so the gradient of x_r is 2 x_r (Σ_s weights_s).
  std::vector<at::Tensor> x(size), weights(size), sums(size);
  for (int rank = 0; rank < size; ++rank)
    x[rank] = at::randn({4, 3}, at::kDouble).requires_grad_(), weights[rank] = at::randn({4, 3}, at::kDouble);
  in_each_process(size, [&](const Group& group) {
    const int rank = group.rank();
    const at::Tensor sum = nn::sum_over_processes(x[rank].square().t(), group);
    sums[rank] = sum.detach();
    (sum * weights[rank].t()).sum().backward();
  });
  const at::Tensor exact_sum = x[0].square() + x[1].square() + x[2].square(),
                   total_weight = weights[0] + weights[1] + weights[2],
                   absolute_weight = weights[0].abs() + weights[1].abs() + weights[2].abs();
  for (int rank = 0; rank < size; ++rank) {
    CHECK(at::equal(sums[rank], sums[0]));
    // Roundings in fp64: a square or product, and a sum of three terms. Weights of both signs cancel in their sum.
    CHECK(rounding::agree(sums[rank].t(), exact_sum.detach(), 3));
    CHECK(rounding::agree(x[rank].grad(), 2 * x[rank].detach() * total_weight, 3,
                          numbers::max_abs(2 * x[rank].detach() * absolute_weight)));
  }
}
