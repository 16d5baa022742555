#include "distributed/heartbeat.h"

#include <future>
#include <memory>
#include <vector>

#include "base/error.h"
#include "base/text.h"

namespace mh::distributed {

namespace {

constexpr std::chrono::seconds kStoreTimeout{5};
// Key of the first result of find_silent_ranks() that is not empty.
constexpr const char* kVerdictKey = "heartbeat/silent";

std::string key_of(int rank) { return str("heartbeat/", rank); }

// Returns the counters of all processes.
std::vector<int64_t> read_counters(c10d::Store& store, int size) {
  std::vector<int64_t> counters;
  for (int rank = 0; rank < size; ++rank) counters.push_back(store.add(key_of(rank), 0));
  return counters;
}

// Returns the result of Heartbeat::silent_ranks() for process `own_rank`. Throws the exceptions of the store.
std::string find_silent_ranks(c10d::Store& store, int own_rank, int size, std::chrono::milliseconds interval) {
  if (store.check({kVerdictKey})) return store.get_to_str(kVerdictKey);
  const std::vector<int64_t> first_counters = read_counters(store, size);
  std::this_thread::sleep_for(4 * interval);
  const std::vector<int64_t> second_counters = read_counters(store, size);
  std::vector<std::string> silent_ranks;
  for (size_t rank = 0; rank < first_counters.size(); ++rank)
    if (static_cast<int>(rank) != own_rank && first_counters[rank] == second_counters[rank])
      silent_ranks.push_back(std::to_string(rank));
  if (silent_ranks.empty()) return "";
  const std::string verdict =
      store.compareSet(kVerdictKey, "", (silent_ranks.size() == 1 ? "rank " : "ranks ") + join(silent_ranks, ", "));
  if (own_rank == 0) std::this_thread::sleep_for(4 * interval);  // other processes still read the store of rank 0
  return verdict;
}

}  // namespace

Heartbeat::Heartbeat(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                     std::chrono::milliseconds interval)
    : store_(store->clone()), rank_(rank), size_(size), interval_(interval) {
  store->add(key_of(rank), 1);  // creates the counter before any process reads it
  thread_ = std::thread([this, thread_store = store->clone()] {
    std::unique_lock lock(mutex_);
    while (!condition_.wait_for(lock, interval_, [this] { return is_stopped_; })) {
      try {
        thread_store->add(key_of(rank_), 1);
      } catch (const std::exception&) {
        return;  // the store has ended; the next operation of the group reports the error
      }
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

// Reads the store in a thread of its own, since operations of the store have no time limit.
std::string Heartbeat::silent_ranks() {
  const auto promise = std::make_shared<std::promise<std::string>>();
  std::future<std::string> result = promise->get_future();
  std::thread([promise, store = store_, rank = rank_, size = size_, interval = interval_] {
    try {
      promise->set_value(find_silent_ranks(*store, rank, size, interval));
    } catch (const std::exception&) {
      promise->set_value("rank 0");
    }
  }).detach();
  if (result.wait_for(10 * interval_ + kStoreTimeout) != std::future_status::ready) return "rank 0";
  return result.get();
}

}  // namespace mh::distributed
