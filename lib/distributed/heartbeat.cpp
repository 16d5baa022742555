#include "distributed/heartbeat.h"

#include <algorithm>
#include <functional>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "distributed/call_within.h"

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

// Returns the result of a query of the store; nullopt if it takes longer than `limit` or throws.
template <class Result>
std::optional<Result> answer_within(milliseconds limit, std::function<Result()> query) {
  try {
    return call_within<Result>(limit, std::move(query));
  } catch (const std::exception&) {
    return std::nullopt;
  }
}

}  // namespace

HeartbeatTimes HeartbeatTimes::for_timeout(milliseconds timeout) {
  const milliseconds diagnosis = std::min(kLongestTimes.diagnosis, timeout / 2);
  // The diagnosis observes the counters, publishes the result, and has two intervals more for the answers of the store.
  return {std::min(kLongestTimes.interval, diagnosis / (2 * kObservedIntervals + 2)), diagnosis};
}

Heartbeat::Heartbeat(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size, const HeartbeatTimes& times)
    : store_(store->clone()), rank_(rank), size_(size), times_(times), shared_(std::make_shared<Shared>()) {
  store->add(key_of(rank), 1);  // creates the counter before any process reads it
  std::thread([shared = shared_, thread_store = store->clone(), rank, interval = times.interval] {
    std::unique_lock lock(shared->mutex);
    while (!shared->condition.wait_for(lock, interval, [&] { return shared->is_stopped; })) {
      lock.unlock();
      std::string published_ranks;
      bool is_answering = true;
      try {
        thread_store->add(key_of(rank), 1);
        published_ranks = read_published_ranks(*thread_store);
      } catch (const std::exception&) {
        is_answering = false;  // the store has ended; the next operation of the group reports the error
      }
      lock.lock();
      if (!is_answering) break;
      if (shared->published_ranks.empty()) shared->published_ranks = published_ranks;
    }
    shared->has_ended = true;
    shared->condition.notify_all();
  }).detach();
}

Heartbeat::~Heartbeat() {
  std::unique_lock lock(shared_->mutex);
  shared_->is_stopped = true;
  shared_->condition.notify_all();
  shared_->condition.wait_for(lock, times_.diagnosis, [this] { return shared_->has_ended; });
}

std::string Heartbeat::published_ranks() {
  const std::lock_guard lock(shared_->mutex);
  return shared_->published_ranks;
}

std::string Heartbeat::silent_ranks() {
  if (std::string ranks = published_ranks(); !ranks.empty()) return ranks;
  const std::optional<std::string> ranks = answer_within<std::string>(
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
      answer_within<Counters>(limit, [store = store_, size = size_] { return read_counters(*store, size); });
  if (!current.has_value()) return "rank 0";
  const Counters previous = std::exchange(counters, *current);
  if (previous.empty()) return "";
  const auto ranks = answer_within<std::string>(
      times_.diagnosis, [store = store_, rank = rank_, interval = times_.interval, previous, current = *current] {
        return publish_silent_ranks(*store, rank, interval, previous, current);
      });
  return ranks.value_or("rank 0");
}

}  // namespace mh::distributed
