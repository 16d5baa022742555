#include "model/device_graph.h"

#include "model/device.h"

namespace mh::model {

std::unique_ptr<DeviceGraph> make_device_graph() {
  using Make = DeviceGraph* (*)();
  static const auto make = reinterpret_cast<Make>(open_symbol("libmultihead-graph.so", kDeviceGraphSymbol));
  return std::unique_ptr<DeviceGraph>(make());
}

}  // namespace mh::model
