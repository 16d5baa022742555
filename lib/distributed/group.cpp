#include "distributed/group.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <numeric>

#include "base/error.h"
#include "base/text.h"
#include "distributed/connections.h"
#include "nn/aten.h"

namespace mh::distributed {

using namespace std::chrono_literals;

struct PendingOperation::State {
  std::shared_ptr<const Connections> connections;
  std::chrono::milliseconds timeout{};
  // Time limit of the wait for an operation that has no time limit of its own; zero: no limit of the wait.
  std::chrono::milliseconds wait_timeout{};
  bool checks_heartbeats = false;  // whether wait() ends with an error if another process has no heartbeat
  c10::intrusive_ptr<c10d::Work> work;
  std::vector<at::Tensor> tensors;  // the tensors of the operation, which c10d does not own
};

namespace {

constexpr int kClosingTag = 1;  // tag of the receive of close_connections(), which no send has

// Returns the error of an operation that has not completed. `silent_ranks`: result of Heartbeat::silent_ranks().
Error operation_error(const Connections& connections, std::chrono::milliseconds timeout,
                      const std::string& silent_ranks, const std::string& message) {
  return {Exit::failed, Problem{str("job of ", connections.size, " processes"),
                                str("an answer from every process within ", seconds_text(timeout)),
                                str(silent_ranks.empty() ? "" : "no heartbeat of " + silent_ranks + "; ", message),
                                "see the messages of the other processes"}};
}

// Calls an operation of c10d and converts its exceptions to Error(failed). `timeout`: time limit of the operation.
template <class Operation>
auto convert_errors(const Connections& connections, std::chrono::milliseconds timeout, const Operation& operation) {
  try {
    return operation();
  } catch (const Error&) {
    throw;
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const std::exception& error) {
    const std::string silent_ranks = connections.heartbeat == nullptr ? "" : connections.heartbeat->silent_ranks();
    throw operation_error(connections, timeout, silent_ranks, first_line_of(error));
  }
}

// Starts an operation on tensors. `timeout`: its time limit; zero: the timeout of the group. `limits_wait`: whether
// wait() applies the time limit, which `operation` does not.
PendingOperation start_operation(
    std::shared_ptr<const Connections> connections, std::vector<at::Tensor> tensors,
    const std::function<c10::intrusive_ptr<c10d::Work>(std::vector<at::Tensor>&)>& operation,
    std::chrono::milliseconds timeout = {}, bool limits_wait = false) {
  auto state = std::make_shared<PendingOperation::State>();
  state->connections = std::move(connections);
  state->tensors = std::move(tensors);
  state->timeout = timeout.count() > 0 ? timeout : state->connections->timeout;
  const std::shared_ptr<Heartbeat>& heartbeat = state->connections->heartbeat;
  if (limits_wait) state->wait_timeout = state->timeout - (heartbeat ? heartbeat->max_diagnosis() : 0ms);
  else state->checks_heartbeats = heartbeat != nullptr && state->timeout > state->connections->timeout;
  state->work = convert_errors(*state->connections, state->timeout, [&] { return operation(state->tensors); });
  return PendingOperation(std::move(state));
}

// Makes the pending operations of Gloo fail, which c10d cannot cancel: a receive that exceeds its time limit closes all
// connections of this process.
void close_connections(const Connections& connections) {
  std::vector<at::Tensor> tensors{at::zeros({1})};
  try {
    connections.backend->recv(tensors, (connections.rank + 1) % connections.size, kClosingTag)->wait(1ms);
  } catch (const std::exception&) {
    // The error of the receive, or of connections that are already closed.
  }
}

// Waits for an operation whose time limit exceeds the timeout of the group. Throws Error(failed) within the timeout if
// another process has no heartbeat: a process that is stopped or disconnected. A third of the timeout passes between
// two readings of the heartbeats, and at most a third while the store answers.
void wait_with_heartbeats(const PendingOperation::State& state) {
  const Connections& connections = *state.connections;
  const std::chrono::milliseconds slice = connections.timeout / 3;
  std::vector<int64_t> counters;
  while (true) {
    try {
      state.work->wait(slice);
      return;
    } catch (const std::exception&) {
      if (state.work->isCompleted()) {
        state.work->wait();  // throws the error of the operation, unless it has completed since
        return;
      }
    }
    const std::string silent_ranks = connections.heartbeat->ranks_silent_since(counters, slice);
    if (silent_ranks.empty()) continue;
    close_connections(connections);
    throw operation_error(connections, connections.timeout, silent_ranks, "an incomplete operation");
  }
}

at::Tensor bytes_of(const std::string& text, int64_t length) {
  at::Tensor bytes = at::zeros({length}, at::kByte);
  if (!text.empty()) std::memcpy(bytes.data_ptr(), text.data(), text.size());
  return bytes;
}
std::string text_of(const at::Tensor& bytes, int64_t length) {
  return {static_cast<const char*>(bytes.data_ptr()), static_cast<size_t>(length)};
}

}  // namespace

void PendingOperation::wait() {
  if (state_ == nullptr) return;
  convert_errors(*state_->connections, state_->timeout, [&] {
    if (state_->checks_heartbeats) wait_with_heartbeats(*state_);
    else state_->work->wait(state_->wait_timeout);
  });
  state_ = nullptr;
}

int Group::rank() const { return is_single() ? 0 : connections_->rank; }
int Group::size() const { return is_single() ? 1 : connections_->size; }

PendingOperation Group::start_sum(const at::Tensor& tensor) const {
  if (is_single() || tensor.numel() == 0) return {};
  return start_operation(connections_, {tensor.detach()}, [&](std::vector<at::Tensor>& tensors) {
    return connections_->backend_of(tensors[0]).allreduce(tensors);
  });
}

void Group::all_gather(const at::Tensor& own, const at::Tensor& all) const {
  if (own.numel() == 0) return;
  if (is_single()) {
    all.copy_(own);
    return;
  }
  start_operation(connections_, {all.detach(), own.detach()}, [&](std::vector<at::Tensor>& tensors) {
    return connections_->backend_of(tensors[0])._allgather_base(tensors[0], tensors[1]);
  }).wait();
}

// Backend::send() and Backend::recv() of c10d receive a list of one tensor and, as their last argument, a tag. All
// calls pass the tag 0, since two ranks call their operations in the same order.
void Group::send(const at::Tensor& tensor, int rank) const {
  if (tensor.numel() == 0) return;
  start_operation(
      connections_, {tensor.detach()},
      [&](std::vector<at::Tensor>& tensors) { return connections_->backend_of(tensors[0]).send(tensors, rank, 0); }, {},
      true)
      .wait();
}

void Group::receive(const at::Tensor& tensor, int rank) const {
  if (tensor.numel() == 0) return;
  start_operation(
      connections_, {tensor.detach()},
      [&](std::vector<at::Tensor>& tensors) { return connections_->backend_of(tensors[0]).recv(tensors, rank, 0); }, {},
      true)
      .wait();
}

void Group::broadcast(const at::Tensor& tensor) const {
  if (is_single() || tensor.numel() == 0) return;
  start_operation(connections_, {tensor.detach()}, [&](std::vector<at::Tensor>& tensors) {
    return connections_->backend_of(tensors[0]).broadcast(tensors);
  }).wait();
}

std::string Group::broadcast(const std::string& text) const {
  if (is_single()) return text;
  const at::Tensor length = at::full({1}, static_cast<int64_t>(text.size()), at::kLong);
  broadcast(length);
  const auto num_bytes = length.item<int64_t>();
  const at::Tensor bytes = is_main() ? bytes_of(text, num_bytes) : at::zeros({num_bytes}, at::kByte);
  broadcast(bytes);
  return text_of(bytes, num_bytes);
}

std::vector<std::string> Group::gather(const std::string& text, std::chrono::milliseconds timeout) const {
  if (is_single()) return {text};
  c10d::AllreduceOptions sum_options;
  c10d::AllgatherOptions gather_options;
  if (timeout.count() > 0) sum_options.timeout = gather_options.timeout = timeout;
  const at::Tensor lengths = at::zeros({size()}, at::kLong);
  lengths[rank()] = static_cast<int64_t>(text.size());
  start_operation(
      connections_, {lengths},
      [&](std::vector<at::Tensor>& tensors) { return connections_->backend->allreduce(tensors, sum_options); }, timeout)
      .wait();
  const int64_t max_length = lengths.max().item<int64_t>();
  std::vector<std::vector<at::Tensor>> outputs(1);
  for (int i = 0; i < size(); ++i) outputs[0].push_back(at::zeros({max_length}, at::kByte));
  if (max_length > 0)
    start_operation(
        connections_, {bytes_of(text, max_length)},
        [&](std::vector<at::Tensor>& inputs) {
          return connections_->backend->allgather(outputs, inputs, gather_options);
        },
        timeout)
        .wait();
  std::vector<std::string> texts;
  for (int i = 0; i < size(); ++i) texts.push_back(text_of(outputs[0][i], lengths[i].item<int64_t>()));
  return texts;
}

// Synchronises by the sum of a tensor of one element, since Gloo's own barrier ignores the timeout of a call.
void Group::barrier(std::chrono::milliseconds timeout) const {
  if (is_single()) return;
  c10d::AllreduceOptions options;
  if (timeout.count() > 0) options.timeout = timeout;
  start_operation(
      connections_, {at::zeros({1})},
      [&](std::vector<at::Tensor>& tensors) { return connections_->backend->allreduce(tensors, options); }, timeout)
      .wait();
}

}  // namespace mh::distributed
