// CUDA graphs: GPU work that is captured once and then replayed by a single launch. A training step of a small model
// consists of a thousand kernels of a few microseconds each, and the host cannot launch kernels as fast as the GPU runs
// them.
//
// A graph contains kernel launches, with the addresses of the memory that the kernels read and write, but no host code.
// Values that differ between replays must be in tensors that keep their memory; the caller updates these tensors before
// each launch.
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
  // Captures the kernels that `work` launches and returns the tensors that `work` returns. `work` must neither wait for
  // the GPU nor read values from it. The returned tensors have no values until the first launch(); each launch() writes
  // new values to the same memory, which is valid for the lifetime of the graph. Must be called exactly once. Throws if
  // the work cannot be captured.
  virtual std::vector<at::Tensor> capture(const Work& work) = 0;
  // Replays the graph on the current stream; returns without waiting for the kernels.
  virtual void launch() = 0;
};

// Creates an empty graph for the GPU that choose_device() has returned. Loads libmultihead-graph.so; throws
// Error(device) if the library is missing.
std::unique_ptr<DeviceGraph> make_device_graph();

// The only exported symbol of libmultihead-graph.so, a function DeviceGraph*(). The caller owns the returned graph.
constexpr const char* kDeviceGraphSymbol = "multihead_device_graph";

}  // namespace mh::nn
