// Heartbeats of the processes of a job: a counter for each process in the key-value store of the job. After an
// operation has failed, the counters show which process has ended or is stopped, whereas the errors of connections name
// addresses and no ranks. A process whose main thread hangs still increments its counter.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>
#include <torch/csrc/distributed/c10d/Store.hpp>

namespace mh::distributed {

class Heartbeat {
 public:
  // Starts a thread that increments the counter of process `rank` in the store every `interval`.
  Heartbeat(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size, std::chrono::milliseconds interval);
  ~Heartbeat();
  Heartbeat(const Heartbeat&) = delete;
  Heartbeat& operator=(const Heartbeat&) = delete;

  // Observes the counters for four intervals and returns the ranks whose counters do not change, such as "rank 2" or
  // "ranks 2, 5"; "rank 0" if the store, which rank 0 serves, does not answer; "" if all processes are alive. Later
  // calls in any process return the first result that is not "", since a later call would also find the processes that
  // ended because of the failure.
  std::string silent_ranks();

 private:
  const c10::intrusive_ptr<c10d::Store> store_;
  const int rank_, size_;
  const std::chrono::milliseconds interval_;
  std::mutex mutex_;
  std::condition_variable condition_;
  bool is_stopped_ = false;
  std::thread thread_;
};

}  // namespace mh::distributed
