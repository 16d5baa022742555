// Work on a GPU that is recorded once and then launched as one (a CUDA graph): a training step of a small model is a
// thousand kernels of a few microseconds, which the host cannot launch as fast as the GPU runs them.
//
// A graph holds kernels and the memory that they read and write, nothing of the host: all that differs from one launch
// to the next must be in tensors that keep their memory and are filled before each launch.
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
  // Records `work`, which must neither wait for the device nor read from it. What it returns has no values yet; each
  // launch() gives it new ones, in the same place, for as long as the graph lives. Called once. Throws
  // Error(device) where the work cannot be recorded.
  virtual std::vector<at::Tensor> record(const Work& work) = 0;
  // On the current stream, without waiting for it.
  virtual void launch() = 0;
};

// On a GPU that choose_device() has returned, with libmultihead-graph.so, which is opened here. Error(device) where it
// is missing.
std::unique_ptr<DeviceGraph> make_device_graph();

// The one symbol of that library: DeviceGraph* (*)(), the caller's.
constexpr const char* kDeviceGraphSymbol = "multihead_device_graph";

}  // namespace mh::nn
