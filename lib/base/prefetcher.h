// A prefetch queue: a thread computes values before they are needed.
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
  // `make` returns one value after another, and none after the last; only the thread calls it, as long as fewer than
  // `most` (at least 1) values are queued.
  Prefetcher(size_t most, std::function<std::optional<T>()> make)
      : most_(most), make_(std::move(make)), thread_([this] { run(); }) {}
  // Waits for the value in progress.
  ~Prefetcher() {
    {
      const std::lock_guard lock(mutex_);
      stops_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }
  Prefetcher(const Prefetcher&) = delete;
  Prefetcher& operator=(const Prefetcher&) = delete;

  // Returns the next value, or none at the end. Throws the exception of `make` in place of its value, and in all later
  // calls.
  std::optional<T> next() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return !queue_.empty() || ended_; });
    if (queue_.empty()) {
      if (thrown_) std::rethrow_exception(thrown_);
      return std::nullopt;
    }
    T first = std::move(queue_.front());
    queue_.pop_front();
    lock.unlock();
    changed_.notify_all();
    return first;
  }

 private:
  void run() {
    try {
      while (std::optional<T> one = make_())
        if (!enqueue(std::move(*one))) return;
      end({});
    } catch (...) {
      end(std::current_exception());
    }
  }

  // Queues a value and waits until the queue has room; returns false if the queue is being destroyed.
  bool enqueue(T one) {
    std::unique_lock lock(mutex_);
    queue_.push_back(std::move(one));
    changed_.notify_all();
    changed_.wait(lock, [this] { return stops_ || queue_.size() < most_; });
    return !stops_;
  }

  void end(std::exception_ptr thrown) {
    {
      const std::lock_guard lock(mutex_);
      ended_ = true;
      thrown_ = std::move(thrown);
    }
    changed_.notify_all();
  }

  const size_t most_;
  const std::function<std::optional<T>()> make_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<T> queue_;
  bool ended_ = false, stops_ = false;
  std::exception_ptr thrown_;
  std::thread thread_;  // last member, since the thread uses all others
};

}  // namespace mh
