// What is made in a thread of its own: its order, how far ahead it is, its end, and what goes wrong.
#include "base/prefetcher.h"

#include <rapidcheck.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <stdexcept>
#include <thread>
#include <vector>

using namespace mh;

TEST_CASE("all comes in its order, and no more is made than may wait", "[ahead]") {
  CHECK(rc::check([] {
    const int count = *rc::gen::inRange(0, 60), taken = *rc::gen::inRange(0, 70);
    const auto most = static_cast<size_t>(*rc::gen::inRange(1, 5));
    const bool slow = *rc::gen::arbitrary<bool>();
    std::atomic<int> made{0}, asked{0}, furthest{0};
    std::vector<int> found;
    {
      Prefetcher<int> ahead(most, [&]() -> std::optional<int> {
        if (made == count) return std::nullopt;
        furthest = std::max<int>(furthest, made + 1 - asked);
        return made++;
      });
      for (int i = 0; i < taken; ++i) {
        if (slow && i % 16 == 0) std::this_thread::sleep_for(std::chrono::microseconds(100));
        ++asked;
        if (const auto one = ahead.next()) found.push_back(*one);
      }
    }
    RC_ASSERT(static_cast<int>(found.size()) == std::min(count, taken));
    for (size_t i = 0; i < found.size(); ++i) RC_ASSERT(found[i] == static_cast<int>(i));
    RC_ASSERT(furthest <= static_cast<int>(most));
  }));
}

TEST_CASE("it works while nobody asks", "[ahead]") {
  std::atomic<int> made{0};
  Prefetcher<int> ahead(2, [&]() -> std::optional<int> { return made++; });
  while (made < 2) std::this_thread::yield();
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  CHECK(made == 2);
  CHECK(ahead.next() == 0);
  while (made < 3) std::this_thread::yield();
}

TEST_CASE("what is thrown comes in its place, and again", "[ahead]") {
  Prefetcher<int> ahead(8, [next = 0]() mutable -> std::optional<int> {
    if (next == 3) throw std::runtime_error("the fourth");
    return next++;
  });
  for (int i = 0; i < 3; ++i) CHECK(ahead.next() == i);
  for (int i = 0; i < 2; ++i) CHECK_THROWS_WITH(ahead.next(), "the fourth");
}

TEST_CASE("what is not asked for is forgotten, and the thread ends", "[ahead]") {
  for (int i = 0; i < 100; ++i) {
    Prefetcher<std::vector<int>> ahead(1, [] { return std::optional(std::vector<int>(1000)); });
    if (i % 2 == 0) CHECK(ahead.next()->size() == 1000);
  }
}
