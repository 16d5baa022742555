// A thread pool that encodes batches of text, and writes the encoded sequences in the order of the batches.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <future>
#include <mutex>
#include <span>
#include <system_error>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "io/shard.h"

namespace mh::text {

// The token sequences of a batch. Tokens after the last element of `ends` belong to a sequence that continues in the
// next batch.
struct EncodedSequences {
  std::vector<int32_t> tokens;
  std::vector<size_t> ends;

  void write(io::ShardWriter& writer) const {
    size_t begin = 0;
    for (size_t end : ends) {
      writer.add_sequence(std::span(tokens).subspan(begin, end - begin));
      begin = end;
    }
    writer.add_tokens(std::span(tokens).subspan(begin));
  }
};

// Applies a function of the type Work to batches in parallel, and passes on the results in the order of the batches.
template <class Batch, class Result>
class OrderedThreadPool {
 public:
  using Work = std::function<Result(const Batch&)>;
  // Function that creates the Work of one thread, with its own encoder and word cache. Each thread calls the function
  // before its first batch.
  using MakeWork = std::function<Work()>;

  // Reads batches with next() until it returns false and passes the results to write(), both in the calling thread.
  // Holds about two batches per thread in memory. Throws the first error in the order of the batches, so that the
  // error does not depend on the number of threads; an error of next() is thrown after all previous batches have been
  // written.
  static void run(int num_threads, const std::function<bool(Batch&)>& next, const MakeWork& make_work,
                  const std::function<void(const Result&)>& write) {
    Batch batch;
    if (num_threads <= 1) {
      Work work = make_work();
      while (next(batch)) write(work(batch));
      return;
    }
    std::deque<std::future<Result>> pending_results;
    OrderedThreadPool workers(num_threads, make_work);
    std::exception_ptr error;
    const auto read_batch = [&] {
      try {
        return next(batch);
      } catch (...) {
        error = std::current_exception();
        return false;
      }
    };
    while (read_batch()) {
      pending_results.push_back(workers.add(std::move(batch)));
      batch = Batch();
      if (pending_results.size() < 2 * static_cast<size_t>(num_threads)) continue;
      write(pending_results.front().get());
      pending_results.pop_front();
    }
    for (auto& result : pending_results) write(result.get());
    if (error != nullptr) std::rethrow_exception(error);
  }

 private:
  struct QueuedBatch {
    Batch batch;
    std::promise<Result> result;
  };
  OrderedThreadPool(int num_threads, const MakeWork& make_work) {
    try {
      for (int i = 0; i < num_threads; ++i) threads_.emplace_back([this, make_work] { run_worker(make_work); });
    } catch (const std::system_error& error) {
      stop();
      throw Error(Exit::failed, Problem{"--threads", count_of(num_threads, "thread"),
                                        str(count_of(threads_.size(), "thread"), ", then the error: ", error.what()),
                                        "lower --threads"});
    }
  }
  ~OrderedThreadPool() { stop(); }
  OrderedThreadPool(const OrderedThreadPool&) = delete;
  OrderedThreadPool& operator=(const OrderedThreadPool&) = delete;
  std::future<Result> add(Batch batch) {
    std::lock_guard lock(mutex_);
    queue_.push_back({std::move(batch), {}});
    auto future = queue_.back().result.get_future();
    queue_changed_.notify_one();
    return future;
  }
  void run_worker(const MakeWork& make_work) {
    // Created for the first batch, so that the result of this batch passes an exception of make_work() to the caller.
    Work work;
    for (;;) {
      std::unique_lock lock(mutex_);
      queue_changed_.wait(lock, [this] { return is_stopping_ || !queue_.empty(); });
      if (queue_.empty()) return;
      auto queued_batch = std::move(queue_.front());
      queue_.pop_front();
      lock.unlock();
      try {
        if (work == nullptr) work = make_work();
        queued_batch.result.set_value(work(queued_batch.batch));
      } catch (...) {
        queued_batch.result.set_exception(std::current_exception());
      }
    }
  }
  void stop() {
    {
      std::lock_guard lock(mutex_);
      is_stopping_ = true;
      queue_.clear();  // after an error, nobody reads the results of the queued batches
    }
    queue_changed_.notify_all();
    for (std::thread& t : threads_) t.join();
  }
  std::mutex mutex_;
  std::condition_variable queue_changed_;
  std::deque<QueuedBatch> queue_;
  bool is_stopping_ = false;
  std::vector<std::thread> threads_;
};

// Runs OrderedThreadPool::run() and displays its progress. `total` is the total number of units and `unit` their name,
// such as "bytes"; write() writes a result and returns the number of units done so far. Returns the elapsed time in
// seconds.
template <class Batch, class Result>
double encode_in_order(int num_threads, uint64_t total, const char* unit, const std::function<bool(Batch&)>& next,
                       const typename OrderedThreadPool<Batch, Result>::MakeWork& make_work,
                       const std::function<uint64_t(const Result&)>& write) {
  const auto start_time = std::chrono::steady_clock::now();
  ProgressLine progress("encode", static_cast<int64_t>(total), unit);
  OrderedThreadPool<Batch, Result>::run(num_threads, next, make_work, [&](const Result& result) {
    progress.update(static_cast<int64_t>(write(result)));
  });
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_time).count();
}

}  // namespace mh::text
