// Makes what is needed next before it is asked for, in a thread of its own.
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
  // `make` gives one thing after the other, and none behind the last; the thread alone calls it, from now on, as long
  // as fewer than `most` (at least 1) are waiting to be taken.
  Prefetcher(size_t most, std::function<std::optional<T>()> make)
      : most_(most), make_(std::move(make)), thread_([this] { run(); }) {}
  // Waits for the one that is being made.
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

  // The next, or none at the end. Throws what `make` has thrown in its place, and again from then on.
  std::optional<T> next() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return !made_.empty() || ended_; });
    if (made_.empty()) {
      if (thrown_) std::rethrow_exception(thrown_);
      return std::nullopt;
    }
    T first = std::move(made_.front());
    made_.pop_front();
    lock.unlock();
    changed_.notify_all();
    return first;
  }

 private:
  void run() {
    try {
      while (std::optional<T> one = make_())
        if (!wait_behind(std::move(*one))) return;
      end({});
    } catch (...) {
      end(std::current_exception());
    }
  }

  // Adds one, and waits until there is room for another; false where nobody wants it.
  bool wait_behind(T one) {
    std::unique_lock lock(mutex_);
    made_.push_back(std::move(one));
    changed_.notify_all();
    changed_.wait(lock, [this] { return stops_ || made_.size() < most_; });
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
  std::deque<T> made_;
  bool ended_ = false, stops_ = false;
  std::exception_ptr thrown_;
  std::thread thread_;  // last, as it uses all of these
};

}  // namespace mh
