// CUDA graphs: work on a GPU that is captured once and then replayed as a whole. A training step of a small model is a
// thousand kernels of a few microseconds, which the host cannot launch as fast as the GPU runs them.
//
// A graph contains kernels and the addresses of the memory that they read and write, and no work of the host. All
// values that differ between replays must be in tensors that keep their memory and that the caller fills before each
// launch.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <vector>

namespace mh::nn {

class DeviceGraph {
 public:
  using Work = std::function<std::vector<at::Tensor>()>;
  virtual ~DeviceGraph() = default;
  // Captures `work`, which must neither wait for the device nor read from it. The returned tensors have no values yet;
  // each launch() writes new values to the same memory, for the lifetime of the graph. To be called once. Throws if the
  // work cannot be captured.
  virtual std::vector<at::Tensor> record(const Work& work) = 0;
  // Replays the graph on the current stream, without waiting for it.
  virtual void launch() = 0;
};

// Creates a graph on the GPU that choose_device() has returned. Loads libmultihead-graph.so; throws Error(device) if it
// is missing.
std::unique_ptr<DeviceGraph> make_device_graph();

// The only symbol of that library: DeviceGraph* (*)(). The caller owns the graph.
constexpr const char* kDeviceGraphSymbol = "multihead_device_graph";

}  // namespace mh::nn
