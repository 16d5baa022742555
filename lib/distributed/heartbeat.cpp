#include "distributed/heartbeat.h"

#include "base/error.h"
#include "base/text.h"

namespace mh::distributed {

namespace {

std::string key_of(int rank) { return str("heartbeat/", rank); }

}  // namespace

Heartbeat::Heartbeat(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                     std::chrono::milliseconds interval)
    : store_(store->clone()), rank_(rank), size_(size), interval_(interval) {
  store->add(key_of(rank), 1);  // every counter exists before any process reads it
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

std::vector<int64_t> Heartbeat::counters() {
  std::vector<int64_t> values;
  for (int rank = 0; rank < size_; ++rank) values.push_back(store_->add(key_of(rank), 0));
  return values;
}

std::string Heartbeat::silent_ranks() {
  try {
    const std::vector<int64_t> first = counters();
    std::this_thread::sleep_for(4 * interval_);
    const std::vector<int64_t> second = counters();
    std::vector<std::string> silent;
    for (int rank = 0; rank < size_; ++rank)
      if (rank != rank_ && first[static_cast<size_t>(rank)] == second[static_cast<size_t>(rank)])
        silent.push_back(std::to_string(rank));
    if (silent.empty()) return "";
    return (silent.size() == 1 ? "rank " : "ranks ") + join(silent, ", ");
  } catch (const std::exception&) {
    return "rank 0";
  }
}

}  // namespace mh::distributed
