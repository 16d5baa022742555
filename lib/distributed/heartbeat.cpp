#include "distributed/heartbeat.h"

#include <algorithm>
#include <functional>
#include <future>
#include <memory>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/text.h"

namespace mh::distributed {

namespace {

using std::chrono::milliseconds;

constexpr HeartbeatTimes kLongestTimes{milliseconds(500), milliseconds(10000)};
// Number of intervals for which silent_ranks() observes the counters, and for which rank 0 then serves the store.
constexpr int kObservedIntervals = 4;
// Key of the first set of silent ranks that a process has published.
constexpr const char* kVerdictKey = "heartbeat/silent";

std::string key_of(int rank) { return str("heartbeat/", rank); }

// Returns the counters of all processes.
std::vector<int64_t> read_counters(c10d::Store& store, int size) {
  std::vector<int64_t> counters;
  for (int rank = 0; rank < size; ++rank) counters.push_back(store.add(key_of(rank), 0));
  return counters;
}

// Returns the published ranks; "" if no process has published any.
std::string read_published_ranks(c10d::Store& store) {
  return store.check({kVerdictKey}) ? store.get_to_str(kVerdictKey) : "";
}

// Publishes the ranks other than `own_rank` whose counters are equal in `first` and `second`, and returns the ranks
// that were published first. Returns "" if all counters differ.
std::string publish_silent_ranks(c10d::Store& store, int own_rank, milliseconds interval,
                                 const std::vector<int64_t>& first, const std::vector<int64_t>& second) {
  std::vector<std::string> silent_ranks;
  for (size_t rank = 0; rank < first.size(); ++rank)
    if (static_cast<int>(rank) != own_rank && first[rank] == second[rank]) silent_ranks.push_back(std::to_string(rank));
  if (silent_ranks.empty()) return "";
  const std::string published_ranks =
      store.compareSet(kVerdictKey, "", (silent_ranks.size() == 1 ? "rank " : "ranks ") + join(silent_ranks, ", "));
  // The other processes read the published ranks from the store of rank 0 in the next interval.
  if (own_rank == 0) std::this_thread::sleep_for(kObservedIntervals * interval);
  return published_ranks;
}

// Calls `query` in a thread of its own, since operations of the store have no time limit, and returns its result;
// nullopt after `limit` or if `query` throws, in which case the thread may still run.
template <class Result>
std::optional<Result> call_within(milliseconds limit, std::function<Result()> query) {
  const auto promise = std::make_shared<std::promise<std::optional<Result>>>();
  std::future<std::optional<Result>> result = promise->get_future();
  std::thread([promise, query = std::move(query)] {
    try {
      promise->set_value(query());
    } catch (const std::exception&) {
      promise->set_value(std::nullopt);
    }
  }).detach();
  if (result.wait_for(limit) != std::future_status::ready) return std::nullopt;
  return result.get();
}

}  // namespace

HeartbeatTimes HeartbeatTimes::for_timeout(milliseconds timeout) {
  const milliseconds diagnosis = std::min(kLongestTimes.diagnosis, timeout / 2);
  // The diagnosis observes the counters, publishes the result, and has two intervals more for the answers of the store.
  return {std::min(kLongestTimes.interval, diagnosis / (2 * kObservedIntervals + 2)), diagnosis};
}

Heartbeat::Heartbeat(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size, const HeartbeatTimes& times)
    : store_(store->clone()), rank_(rank), size_(size), times_(times) {
  store->add(key_of(rank), 1);  // creates the counter before any process reads it
  thread_ = std::thread([this, thread_store = store->clone()] {
    std::unique_lock lock(mutex_);
    while (!condition_.wait_for(lock, times_.interval, [this] { return is_stopped_; })) {
      lock.unlock();
      std::string published_ranks;
      try {
        thread_store->add(key_of(rank_), 1);
        published_ranks = read_published_ranks(*thread_store);
      } catch (const std::exception&) {
        return;  // the store has ended; the next operation of the group reports the error
      }
      lock.lock();
      if (published_ranks_.empty()) published_ranks_ = published_ranks;
    }
  });
}

Heartbeat::~Heartbeat() {
  {
    const std::lock_guard lock(mutex_);
    is_stopped_ = true;
  }
  condition_.notify_all();
  thread_.join();
}

std::string Heartbeat::published_ranks() {
  const std::lock_guard lock(mutex_);
  return published_ranks_;
}

std::string Heartbeat::silent_ranks() {
  if (std::string ranks = published_ranks(); !ranks.empty()) return ranks;
  const std::optional<std::string> ranks = call_within<std::string>(
      times_.diagnosis, [store = store_, rank = rank_, size = size_, interval = times_.interval]() -> std::string {
        if (std::string rank_text = read_published_ranks(*store); !rank_text.empty()) return rank_text;
        const std::vector<int64_t> first = read_counters(*store, size);
        std::this_thread::sleep_for(kObservedIntervals * interval);
        return publish_silent_ranks(*store, rank, interval, first, read_counters(*store, size));
      });
  if (ranks.has_value()) return *ranks;
  const std::string rank_text = published_ranks();  // the thread may have read them before the store ended
  return rank_text.empty() ? "rank 0" : rank_text;
}

std::string Heartbeat::ranks_silent_since(std::vector<int64_t>& counters, milliseconds limit) {
  if (std::string ranks = published_ranks(); !ranks.empty()) return ranks;
  using Counters = std::vector<int64_t>;
  const auto current =
      call_within<Counters>(limit, [store = store_, size = size_] { return read_counters(*store, size); });
  if (!current.has_value()) return "rank 0";
  const Counters previous = std::exchange(counters, *current);
  if (previous.empty()) return "";
  const auto ranks = call_within<std::string>(
      times_.diagnosis, [store = store_, rank = rank_, interval = times_.interval, previous, current = *current] {
        return publish_silent_ranks(*store, rank, interval, previous, current);
      });
  return ranks.value_or("rank 0");
}

}  // namespace mh::distributed
