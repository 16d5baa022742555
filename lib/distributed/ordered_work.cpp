#include "distributed/ordered_work.h"

#include <chrono>
#include <cstring>
#include <stdexcept>
#include <string>
#include <utility>

#include "base/signals.h"
#include "nn/aten.h"

namespace mh::distributed {

namespace {

// Maximum time for which a process waits for the results of another process. A process that ends or loses its
// connection ends the wait at once, and a process that is stopped ends it within the timeout of the group.
constexpr std::chrono::hours kResultTimeout{24};

void append_integer(std::string& bytes, int64_t value) {
  bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
}
int64_t read_integer(const std::string& bytes, size_t& position) {
  int64_t value = 0;
  if (bytes.size() - position < sizeof value)
    throw std::logic_error("OrderedWork: the processes have added different items");
  std::memcpy(&value, bytes.data() + position, sizeof value);
  position += sizeof value;
  return value;
}

// A tensor is stored as element type, number of axes, sizes and elements, without conversion, since all processes of a
// job run the same build.
void append_tensor(std::string& bytes, const at::Tensor& tensor) {
  const at::Tensor t = tensor.contiguous();
  append_integer(bytes, static_cast<int64_t>(t.scalar_type()));
  append_integer(bytes, t.dim());
  for (const int64_t size : t.sizes()) append_integer(bytes, size);
  bytes.append(static_cast<const char*>(t.const_data_ptr()), t.nbytes());
}
at::Tensor read_tensor(const std::string& bytes, size_t& position) {
  const auto type = static_cast<at::ScalarType>(read_integer(bytes, position));
  std::vector<int64_t> sizes(static_cast<size_t>(read_integer(bytes, position)));
  for (int64_t& size : sizes) size = read_integer(bytes, position);
  at::Tensor tensor = at::empty(sizes, type);
  if (bytes.size() - position < tensor.nbytes())
    throw std::logic_error("OrderedWork: the processes have added different items");
  if (tensor.nbytes() > 0) std::memcpy(tensor.data_ptr(), bytes.data() + position, tensor.nbytes());
  position += tensor.nbytes();
  return tensor;
}

}  // namespace

void OrderedWork::add(int64_t unit, const std::function<Results()>& compute,
                      std::function<void(const Results&)> consume) {
  if (is_stopped_) return;
  if (group_.is_single()) {
    is_stopped_ = stop_signal() != 0;
    if (!is_stopped_) consume(compute());
    return;
  }
  if (!pending_items_.empty() && unit / group_.size() != pending_items_.back().unit / group_.size())
    exchange_and_consume_results();
  if (is_stopped_) return;
  pending_items_.push_back({unit, is_own(unit) ? compute() : Results{}, std::move(consume)});
}

void OrderedWork::finish() {
  if (!pending_items_.empty()) exchange_and_consume_results();
}

void OrderedWork::exchange_and_consume_results() {
  // A stop signal takes effect after the round, in all processes.
  std::string own_bytes(1, stop_signal() != 0 ? '\1' : '\0');
  for (const Item& item : pending_items_)
    if (is_own(item.unit)) {
      append_integer(own_bytes, static_cast<int64_t>(item.results.size()));
      for (const at::Tensor& tensor : item.results) append_tensor(own_bytes, tensor);
    }
  const std::vector<std::string> bytes = group_.gather(own_bytes, kResultTimeout);
  std::vector<size_t> positions(bytes.size(), 1);
  for (const Item& item : std::exchange(pending_items_, {})) {
    const auto owner = static_cast<size_t>(item.unit % group_.size());
    Results results(static_cast<size_t>(read_integer(bytes[owner], positions[owner])));
    for (at::Tensor& tensor : results) tensor = read_tensor(bytes[owner], positions[owner]);
    item.consume(results);
  }
  for (const std::string& b : bytes) is_stopped_ = is_stopped_ || b[0] != '\0';
}

}  // namespace mh::distributed
