// Heartbeats of the processes of a job: a counter for each process in the key-value store of the job. After an
// operation has failed, the counters show which process has ended or is stopped, whereas the errors of connections name
// addresses and no ranks. A process whose main thread hangs still increments its counter: an operation that waits for
// this process ends after its time limit, with an error that names no rank.
#pragma once

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

namespace mh::distributed {

// Durations of the heartbeats of a job.
struct HeartbeatTimes {
  std::chrono::milliseconds interval{};   // between two increments of a counter
  std::chrono::milliseconds diagnosis{};  // maximum duration of Heartbeat::silent_ranks()

  // Returns the times of a job whose processes must end within `timeout` after the failure of one of them: at most half
  // of the timeout remains for the diagnosis.
  static HeartbeatTimes for_timeout(std::chrono::milliseconds timeout);
};

class Heartbeat {
 public:
  // Starts a thread that increments the counter of process `rank` in the store every `times.interval`.
  Heartbeat(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size, const HeartbeatTimes& times);
  // Waits for the thread at most for the duration of a diagnosis, since the store may not answer any more; the thread
  // then ends later.
  ~Heartbeat();
  Heartbeat(const Heartbeat&) = delete;
  Heartbeat& operator=(const Heartbeat&) = delete;

  // Observes the counters for four intervals and returns the ranks whose counters do not change, such as "rank 2" or
  // "ranks 2, 5"; "rank 0" if the store, which rank 0 serves, does not answer; "" if all processes are alive. Later
  // calls in any process return the first result that is not "", since a later call would also find the processes that
  // ended because of the failure.
  std::string silent_ranks();

  // Returns the ranks whose counters have not changed since the previous call with the same `counters`, in the form of
  // silent_ranks(); "" if there are none, and in the first call, in which `counters` is empty. Replaces `counters` by
  // the current counters. Returns "rank 0" if the store does not answer within `limit`. A result that is not "" becomes
  // the result of silent_ranks() in all processes.
  std::string ranks_silent_since(std::vector<int64_t>& counters, std::chrono::milliseconds limit);

  // Returns the maximum duration of silent_ranks().
  std::chrono::milliseconds max_diagnosis() const { return times_.diagnosis; }

 private:
  // The variables that the thread shares with this object, which the thread may outlive.
  struct Shared {
    std::mutex mutex;
    std::condition_variable condition;
    bool is_stopped = false;
    bool has_ended = false;  // whether the thread has ended
    // The result of silent_ranks() that a process has published, as the thread has read it from the store. After that
    // process has ended, the store may not answer any more.
    std::string published_ranks;
  };
  std::string published_ranks();

  const c10::intrusive_ptr<c10d::Store> store_;
  const int rank_, size_;
  const HeartbeatTimes times_;
  const std::shared_ptr<Shared> shared_;
};

}  // namespace mh::distributed
