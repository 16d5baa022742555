// A time limit for functions that have none of their own, such as the operations of a c10d store: against a process
// that is stopped, or a connection that transmits nothing, they wait without end.
#pragma once

#include <chrono>
#include <exception>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <thread>
#include <utility>

namespace mh::distributed {

// Calls `function` in a thread of its own and returns its result, or rethrows its exception; nullopt after `limit`. The
// thread may then still run, so `function` must own everything that it uses.
template <class Result>
std::optional<Result> call_within(std::chrono::milliseconds limit, std::function<Result()> function) {
  const auto promise = std::make_shared<std::promise<Result>>();
  std::future<Result> result = promise->get_future();
  std::thread([promise, function = std::move(function)] {
    try {
      promise->set_value(function());
    } catch (...) {
      promise->set_exception(std::current_exception());
    }
  }).detach();
  if (result.wait_for(limit) != std::future_status::ready) return std::nullopt;
  return result.get();
}

}  // namespace mh::distributed
