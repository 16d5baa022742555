// The c10d objects of a group. Only sources of this folder include this file, since the headers of c10d are large.
#pragma once

#include <chrono>
#include <exception>
#include <memory>
#include <stdexcept>
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "base/text.h"
#include "distributed/heartbeat.h"

namespace mh::distributed {

// Returns the first line of the text of an exception; the other lines of LibTorch's exceptions are a stack trace.
inline std::string first_line_of(const std::exception& error) {
  const std::string message = error.what();
  return message.substr(0, message.find('\n'));
}

inline std::string seconds_text(std::chrono::milliseconds duration) {
  return human_seconds(std::chrono::duration<double>(duration).count());
}

struct Connections {
  int rank = 0, size = 1;
  std::chrono::milliseconds timeout{};        // time limit of each operation
  c10::intrusive_ptr<c10d::Store> store;      // key-value store of the job
  c10::intrusive_ptr<c10d::Backend> backend;  // operations on tensors in main memory
  // Operations on tensors on GPUs; null: the processes exchange no such tensors.
  c10::intrusive_ptr<c10d::Backend> gpu_backend{};
  std::shared_ptr<Heartbeat> heartbeat{};  // null: errors do not name the process that failed

  // Returns the backend for operations on `tensor`.
  c10d::Backend& backend_of(const at::Tensor& tensor) const {
    if (!tensor.is_cuda()) return *backend;
    if (gpu_backend == nullptr) throw std::logic_error("Group: expected tensors on the CPU; found one on a GPU");
    return *gpu_backend;
  }
};

}  // namespace mh::distributed
