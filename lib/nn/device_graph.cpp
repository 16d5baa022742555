// Loads libmultihead-graph.so, which implements DeviceGraph, and creates graphs.
#include "nn/device_graph.h"

#include "nn/device.h"

namespace mh::nn {

std::unique_ptr<DeviceGraph> make_device_graph() {
  using Make = DeviceGraph* (*)();
  static const auto make = reinterpret_cast<Make>(open_symbol("libmultihead-graph.so", kDeviceGraphSymbol));
  return std::unique_ptr<DeviceGraph>(make());
}

}  // namespace mh::nn
