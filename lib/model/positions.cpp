#include "model/positions.h"

#include <cmath>

namespace mh::model {

at::Tensor sinusoidal_positions(int64_t first, int64_t length, int64_t width, at::Device device) {
  const int64_t half = width / 2;
  at::Tensor table = at::empty({length, width});
  auto* out = table.mutable_data_ptr<float>();
  for (int64_t p = 0; p < length; ++p)
    for (int64_t k = 0; k < half; ++k) {
      double frequency =
          std::exp(-static_cast<double>(k) * std::log(10000.0) / static_cast<double>(std::max<int64_t>(1, half - 1)));
      double angle = static_cast<double>(first + p) * frequency;
      out[p * width + k] = static_cast<float>(std::sin(angle));
      out[p * width + half + k] = static_cast<float>(std::cos(angle));
    }
  return table.to(device);
}

}  // namespace mh::model
