// Divides the work items of an evaluation among the processes of a job, and delivers the results in the order of the
// items, so that every process accumulates them as one process would.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <vector>

#include "distributed/group.h"

namespace mh::distributed {

// A unit is one item, or several consecutive items that the same process must compute. Process u % (number of
// processes) computes unit u. A round has one unit for each process. The processes exchange the results of a round when
// the first item of the next round is added; finish() exchanges the results of the last round.
class OrderedWork {
 public:
  using Results = std::vector<at::Tensor>;  // tensors on the CPU

  // `group`: the processes, which must outlive this object; null: one process.
  explicit OrderedWork(const Group* group) : group_(group != nullptr ? *group : single_process_) {}
  OrderedWork(const OrderedWork&) = delete;
  OrderedWork& operator=(const OrderedWork&) = delete;

  // Returns whether several processes share the items.
  bool is_shared() const { return !group_.is_single(); }

  // Returns whether this process computes the items of a unit.
  bool is_own(int64_t unit) const { return group_.is_single() || unit % group_.size() == group_.rank(); }
  // Adds the next item. All processes add the same items, in the order of their units, which begin at 0. `compute` is
  // called now, if the unit is this process's own; `consume` is called in every process, in the order of the items, now
  // or at a later call of add() or finish(). If a process has received a stop signal (base/signals.h), no items of
  // later rounds are computed or consumed.
  void add(int64_t unit, const std::function<Results()>& compute, std::function<void(const Results&)> consume);
  // Exchanges and consumes the remaining results. All processes call this function after the last item.
  void finish();
  // Returns whether a stop signal ended the work in all processes.
  bool is_stopped() const { return is_stopped_; }

 private:
  struct Item {
    int64_t unit;
    Results results;  // set if the unit is this process's own
    std::function<void(const Results&)> consume;
  };
  void exchange_and_consume_results();

  const Group single_process_;
  const Group& group_;
  std::vector<Item> pending_items_;
  bool is_stopped_ = false;
};

}  // namespace mh::distributed
