// A prefetch queue: a background thread computes values before they are needed.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

namespace mh {

template <class T>
class Prefetcher {
 public:
  // `produce` returns the next value on each call, and no value after the last one. Only the background thread calls
  // `produce`, and only while the queue has fewer than `capacity` values. `capacity` is at least 1.
  Prefetcher(size_t capacity, std::function<std::optional<T>()> produce)
      : capacity_(capacity), produce_(std::move(produce)), thread_([this] { run_producer(); }) {}
  // Stops the thread after the call of `produce` in progress, and discards the queue.
  ~Prefetcher() {
    {
      const std::lock_guard lock(mutex_);
      is_stopping_ = true;
    }
    state_changed_.notify_all();
    thread_.join();
  }
  Prefetcher(const Prefetcher&) = delete;
  Prefetcher& operator=(const Prefetcher&) = delete;

  // Waits for the next value and returns it; returns none after the last value. If `produce` throws, next() returns the
  // values produced before, then rethrows the exception in every later call.
  std::optional<T> next() {
    std::unique_lock lock(mutex_);
    state_changed_.wait(lock, [this] { return !queue_.empty() || has_ended_; });
    if (queue_.empty()) {
      if (exception_) std::rethrow_exception(exception_);
      return std::nullopt;
    }
    T first = std::move(queue_.front());
    queue_.pop_front();
    lock.unlock();
    state_changed_.notify_all();
    return first;
  }

 private:
  void run_producer() {
    try {
      while (std::optional<T> value = produce_())
        if (!enqueue(std::move(*value))) return;
      finish({});
    } catch (...) {
      finish(std::current_exception());
    }
  }

  // Appends a value to the queue, then waits until the queue has room; returns false if the destructor has started.
  bool enqueue(T value) {
    std::unique_lock lock(mutex_);
    queue_.push_back(std::move(value));
    state_changed_.notify_all();
    state_changed_.wait(lock, [this] { return is_stopping_ || queue_.size() < capacity_; });
    return !is_stopping_;
  }

  // Marks the end of the values. `exception`: exception of `produce`, or null.
  void finish(std::exception_ptr exception) {
    {
      const std::lock_guard lock(mutex_);
      has_ended_ = true;
      exception_ = std::move(exception);
    }
    state_changed_.notify_all();
  }

  const size_t capacity_;
  const std::function<std::optional<T>()> produce_;
  std::mutex mutex_;
  std::condition_variable state_changed_;
  std::deque<T> queue_;
  bool has_ended_ = false, is_stopping_ = false;
  std::exception_ptr exception_;
  std::thread thread_;  // declared last, since the thread uses all other members
};

}  // namespace mh
