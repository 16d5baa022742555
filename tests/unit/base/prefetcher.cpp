// Tests of Prefetcher, a prefetch queue: order of the values, limit of the queue, destruction, and exceptions of the
// producer.
#include "base/prefetcher.h"

#include <rapidcheck.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <stdexcept>
#include <thread>
#include <vector>

using namespace mh;

TEST_CASE("a Prefetcher returns values in order and never queues more than its limit", "[prefetch]") {
  CHECK(rc::check([] {
    const int num_values = *rc::gen::inRange(0, 60), num_requests = *rc::gen::inRange(0, 70);
    const auto limit = static_cast<size_t>(*rc::gen::inRange(1, 5));
    const bool is_slow = *rc::gen::arbitrary<bool>();
    std::atomic<int> num_produced{0}, num_requested{0}, max_queued{0};
    std::vector<int> actual;
    {
      Prefetcher<int> prefetcher(limit, [&]() -> std::optional<int> {
        if (num_produced == num_values) return std::nullopt;
        max_queued = std::max<int>(max_queued, num_produced + 1 - num_requested);
        return num_produced++;
      });
      for (int i = 0; i < num_requests; ++i) {
        if (is_slow && i % 16 == 0) std::this_thread::sleep_for(std::chrono::microseconds(100));
        ++num_requested;
        if (const auto value = prefetcher.next()) actual.push_back(*value);
      }
    }
    RC_ASSERT(static_cast<int>(actual.size()) == std::min(num_values, num_requests));
    for (size_t i = 0; i < actual.size(); ++i) RC_ASSERT(actual[i] == static_cast<int>(i));
    RC_ASSERT(max_queued <= static_cast<int>(limit));
  }));
}

TEST_CASE("a Prefetcher fills its queue before the first call of next()", "[prefetch]") {
  std::atomic<int> num_produced{0};
  Prefetcher<int> prefetcher(2, [&]() -> std::optional<int> { return num_produced++; });
  while (num_produced < 2) std::this_thread::yield();
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  CHECK(num_produced == 2);
  CHECK(prefetcher.next() == 0);
  while (num_produced < 3) std::this_thread::yield();
}

TEST_CASE("Prefetcher::next() rethrows an exception of the producer in place of the value and in all later calls",
          "[prefetch]") {
  Prefetcher<int> prefetcher(8, [next = 0]() mutable -> std::optional<int> {
    if (next == 3) throw std::runtime_error("the fourth");
    return next++;
  });
  for (int i = 0; i < 3; ++i) CHECK(prefetcher.next() == i);
  for (int i = 0; i < 2; ++i) CHECK_THROWS_WITH(prefetcher.next(), "the fourth");
}

TEST_CASE("destroying a Prefetcher discards the queued values and stops its thread", "[prefetch]") {
  for (int i = 0; i < 100; ++i) {
    Prefetcher<std::vector<int>> prefetcher(1, [] { return std::optional(std::vector<int>(1000)); });
    if (i % 2 == 0) CHECK(prefetcher.next()->size() == 1000);
  }
}
