// Communication between the processes of a job, here threads of the test program: sums, broadcasts, gathers,
// heartbeats.
#include "distributed/group.h"

#include <array>
#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "distributed/heartbeat.h"
#include "fixtures/aten.h"
#include "fixtures/processes.h"
#include "oracle/tolerance.h"

using namespace mh;
using distributed::Group;

namespace {

// Returns a tensor (size) of random numbers, different in each process.
at::Tensor random_tensor(int rank, int64_t size, at::ScalarType type) {
  auto generator = at::make_generator<at::CPUGeneratorImpl>(17 + rank);
  return at::randn({size}, generator, at::TensorOptions(type));
}

}  // namespace

TEST_CASE("group: operations of a group of one process leave tensors and texts unchanged") {
  const Group group;
  const at::Tensor t = at::ones({3});
  group.sum(t);
  group.broadcast(t);
  const at::Tensor all = at::zeros({3});
  group.all_gather(t, all);
  CHECK(at::equal(all, t));
  group.barrier();
  CHECK(at::equal(t, at::ones({3})));
  CHECK(group.is_main());
  CHECK(group.size() == 1);
  CHECK(group.gather("text") == std::vector<std::string>{"text"});
}

TEST_CASE("group: a sum over all processes is within rounding of the exact sum and bit-identical in all processes") {
  for (const int size : {2, 3, 5}) {
    for (const int64_t length : {0, 1, 2, 1000, 100003}) {
      at::Tensor exact = at::zeros({length}, at::kDouble), magnitude = at::zeros({length}, at::kDouble);
      for (int rank = 0; rank < size; ++rank) {
        const at::Tensor term = random_tensor(rank, length, at::kFloat).to(at::kDouble);
        exact += term;
        magnitude += term.abs();
      }
      std::vector<at::Tensor> results(size);
      in_each_process(size, [&](const Group& group) {
        const at::Tensor t = random_tensor(group.rank(), length, at::kFloat);
        group.sum(t);
        results[group.rank()] = t;
      });
      // A sum of n terms has n - 1 roundings of the sum of absolute terms, in fp32 and in the reference in fp64.
      const double bound = tolerance::sum_error_bound(size - 1, (size - 1) * tolerance::kFp64, 1);
      CHECK(((results[0].to(at::kDouble) - exact).abs() <= bound * magnitude).all().item<bool>());
      for (int rank = 1; rank < size; ++rank) CHECK(at::equal(results[rank], results[0]));
    }
  }
}

TEST_CASE("group: sums of several tensors may be pending at the same time") {
  in_each_process(3, [](const Group& group) {
    std::vector<at::Tensor> tensors;
    std::vector<distributed::PendingOperation> pending;
    for (int i = 0; i < 20; ++i) {
      tensors.push_back(at::full({1 + 100 * i}, group.rank() + i, at::kDouble));
      pending.push_back(group.start_sum(tensors.back()));
    }
    for (auto& operation : pending) operation.wait();
    for (int i = 0; i < 20; ++i)
      if (!(tensors[i] == 3.0 * i + 3).all().item<bool>()) throw std::runtime_error("wrong sum");
  });
}

TEST_CASE("group: all_gather() returns the tensors of all processes, in the order of their ranks") {
  for (const int size : {2, 3})
    for (const int64_t length : {0, 1, 1000})
      in_each_process(size, [&](const Group& group) {
        for (const at::ScalarType type : {at::kFloat, at::kByte}) {
          std::vector<at::Tensor> expected;
          for (int rank = 0; rank < size; ++rank) expected.push_back(at::full({length}, 3 * rank + 1, type));
          const at::Tensor all = at::zeros({size * length}, type);
          group.all_gather(expected[group.rank()], all);
          if (!at::equal(all, nn::cat(expected))) throw std::runtime_error("wrong tensors");
        }
      });
}

TEST_CASE("group: a rank receives tensors in the order in which another rank sends them") {
  in_each_process(3, [](const Group& group) {
    for (const int64_t length : {0, 1, 100000}) {
      if (!group.is_main()) group.send(random_tensor(group.rank(), length, at::kFloat), 0);
      for (int rank = 1; rank < 3 && group.is_main(); ++rank) {
        const at::Tensor received = at::zeros({length + 2});
        group.receive(received.narrow(0, 1, length), rank);
        if (!at::equal(received.narrow(0, 1, length), random_tensor(rank, length, at::kFloat)))
          throw std::runtime_error("wrong tensor");
        if (received[0].item<float>() != 0 || received[length + 1].item<float>() != 0)
          throw std::runtime_error("elements outside of the tensor changed");
      }
    }
  });
}

TEST_CASE("group: send() ends with an error if the other rank does not receive within the timeout of the group") {
  const auto send_to_sleeper = [](const Group& group) {
    if (group.is_main()) std::this_thread::sleep_for(std::chrono::seconds(2));
    else group.send(at::ones({1000}), 0);
  };
  CHECK_THROWS_AS(in_each_process(2, send_to_sleeper, std::chrono::milliseconds(500)), Error);
}

TEST_CASE("group: broadcasts and gathers texts of any bytes and lengths") {
  const std::vector<std::string> texts{"", std::string("a\0b", 3), std::string(100000, 'x')};
  for (const std::string& text : texts)
    in_each_process(3, [&](const Group& group) {
      if (group.broadcast(group.is_main() ? text : "other") != text) throw std::runtime_error("wrong text");
      if (group.gather(texts[group.rank()]) != texts) throw std::runtime_error("wrong texts");
      group.barrier();
    });
}

TEST_CASE("heartbeat: silent_ranks() returns the ranks of the processes that have ended") {
  const distributed::HeartbeatTimes times{std::chrono::milliseconds(20), std::chrono::milliseconds(2000)};
  for (const bool only_one_ends : {true, false}) {
    const auto store = c10::make_intrusive<c10d::HashStore>();
    distributed::Heartbeat first(store, 0, 4, times), third(store, 2, 4, times);
    auto second = std::make_unique<distributed::Heartbeat>(store, 1, 4, times),
         fourth = std::make_unique<distributed::Heartbeat>(store, 3, 4, times);
    CHECK(first.silent_ranks().empty());
    second = nullptr;
    if (!only_one_ends) fourth = nullptr;
    CHECK(first.silent_ranks() == (only_one_ends ? "rank 1" : "ranks 1, 3"));
    // All processes return the ranks that the first process found, although another process has ended since.
    fourth = nullptr;
    CHECK(third.silent_ranks() == (only_one_ends ? "rank 1" : "ranks 1, 3"));
  }
}

TEST_CASE("heartbeat: ranks_silent_since() returns the ranks whose counters do not change between two calls") {
  const distributed::HeartbeatTimes times{std::chrono::milliseconds(20), std::chrono::milliseconds(2000)};
  const std::chrono::milliseconds limit(2000), pause(300);
  const auto store = c10::make_intrusive<c10d::HashStore>();
  distributed::Heartbeat first(store, 0, 3, times), third(store, 2, 3, times);
  auto second = std::make_unique<distributed::Heartbeat>(store, 1, 3, times);
  std::vector<int64_t> counters;
  CHECK(first.ranks_silent_since(counters, limit).empty());
  std::this_thread::sleep_for(pause);
  CHECK(first.ranks_silent_since(counters, limit).empty());
  std::this_thread::sleep_for(pause);
  second = nullptr;
  CHECK(first.ranks_silent_since(counters, limit).empty());  // the counter of rank 1 changed before rank 1 ended
  std::this_thread::sleep_for(pause);
  CHECK(first.ranks_silent_since(counters, limit) == "rank 1");
  CHECK(third.silent_ranks() == "rank 1");
}

TEST_CASE("heartbeat: the search for silent ranks takes at most half of a short timeout and 10 s of a long one") {
  using std::chrono::milliseconds;
  for (const auto& [timeout, diagnosis, interval] :
       {std::array{1000, 500, 50}, std::array{4000, 2000, 200}, std::array{600000, 10000, 500}}) {
    const auto times = distributed::HeartbeatTimes::for_timeout(milliseconds(timeout));
    CHECK(times.diagnosis == milliseconds(diagnosis));
    CHECK(times.interval == milliseconds(interval));
  }
}

TEST_CASE("group: a wait longer than the timeout of the group ends with an error if a process is stopped") {
  const std::chrono::milliseconds timeout(1500);
  std::array<std::string, 2> messages;
  std::atomic<int> num_ended = 0;
  const auto start = std::chrono::steady_clock::now();
  in_each_process(
      3,
      [&](const Group& group) {
        if (group.rank() == 2) {
          while (num_ended < 2) std::this_thread::sleep_for(std::chrono::milliseconds(10));
          return;
        }
        try {
          group.barrier(std::chrono::seconds(60));
        } catch (const Error& error) {
          messages[static_cast<size_t>(group.rank())] = error.what();
        }
        ++num_ended;
      },
      timeout, std::set<int>{0, 1});
  for (const std::string& message : messages) CHECK_THAT(message, Catch::Contains("no heartbeat of rank 2"));
  CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(30));
}

TEST_CASE("group: a wait longer than the timeout of the group continues while all processes have heartbeats") {
  const std::chrono::milliseconds timeout(1500);
  in_each_process(
      2,
      [&](const Group& group) {
        if (group.rank() == 1) std::this_thread::sleep_for(2 * timeout);
        group.barrier(std::chrono::seconds(60));
        if (group.gather("text", std::chrono::seconds(60)).size() != 2) throw std::runtime_error("wrong texts");
      },
      timeout, std::set<int>{0, 1});
}

TEST_CASE("group: if a process does not take part in a sum, the other processes end with an error") {
  try {
    in_each_process(
        2,
        [](const Group& group) {
          if (group.is_main()) group.sum(at::ones({1000}));
          else std::this_thread::sleep_for(std::chrono::seconds(2));
        },
        std::chrono::milliseconds(500));
    FAIL("expected an error");
  } catch (const Error& error) {
    CHECK(error.exit() == Exit::failed);
    CHECK_THAT(error.what(), Catch::Contains("job of 2 processes: expected an answer from every process within 1s"));
  }
}
