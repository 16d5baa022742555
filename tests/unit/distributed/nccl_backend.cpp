// Groups of processes on GPUs. A test with one GPU can run a group of one process only: it checks that NCCL opens and
// computes, not that several GPUs communicate.
#include "distributed/nccl_backend.h"

#include <catch2/catch.hpp>
#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include "distributed/connections.h"
#include "distributed/group.h"
#include "fixtures/aten.h"
#include "fixtures/device.h"
#include "fixtures/skip.h"
#include "nn/device.h"

using namespace mh;

TEST_CASE("nccl: operations of a group of one process leave tensors on a GPU unchanged", "[device]") {
  if (test_device() != "cuda") SKIP("needs --device cuda");
  const at::Device gpu = nn::choose_device("cuda");
  auto connections = std::make_shared<distributed::Connections>();
  connections->timeout = std::chrono::seconds(60);
  connections->store = c10::make_intrusive<c10d::HashStore>();
  connections->gpu_backend = distributed::make_nccl_backend(connections->store, 0, 1, connections->timeout);
  const distributed::Group group(std::move(connections));
  for (const at::ScalarType type : {at::kFloat, at::kDouble, at::kBFloat16, at::kLong}) {
    const at::Tensor expected = at::arange(100003, at::TensorOptions(type)), t = expected.to(gpu);
    group.sum(t);
    CHECK(at::equal(t.cpu(), expected));
    group.broadcast(t);
    CHECK(at::equal(t.cpu(), expected));
    const at::Tensor all = at::zeros_like(t);
    group.all_gather(t, all);
    CHECK(at::equal(all.cpu(), expected));
    std::vector<distributed::PendingOperation> pending;
    for (int i = 0; i < 5; ++i) pending.push_back(group.start_sum(t.narrow(0, 1000 * i, 1000)));
    for (auto& operation : pending) operation.wait();
    CHECK(at::equal(t.cpu(), expected));
  }
}

TEST_CASE("nccl: a group without a backend for GPUs refuses a tensor on a GPU", "[device]") {
  if (test_device() != "cuda") SKIP("needs --device cuda");
  const at::Device gpu = nn::choose_device("cuda");
  const distributed::Group group(std::make_shared<distributed::Connections>());
  CHECK_THROWS_WITH(group.sum(at::ones({3}, gpu)), Catch::Contains("expected tensors on the CPU"));
}
