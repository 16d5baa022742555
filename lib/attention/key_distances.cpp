// Divides keys into ranges of consecutive positions, and lists the distances between queries and keys.
#include "attention/key_distances.h"

#include "nn/aten.h"

namespace mh::attention {

std::vector<PositionRange> position_ranges(const Mask& mask, int64_t num_keys) {
  if (!mask.key_positions.defined()) return {{0, num_keys, -mask.offset}};
  const at::Tensor positions = mask.key_positions.to(at::kCPU, at::kLong).contiguous();
  const auto* p = positions.const_data_ptr<int64_t>();
  std::vector<PositionRange> ranges;
  for (int64_t s = 0; s < num_keys; ++s) {
    if (s > 0 && p[s] == p[s - 1] + 1) ++ranges.back().num_keys;
    else ranges.push_back({s, 1, p[s]});
  }
  return ranges;
}

KeyDistances key_distances(const Mask& mask, int64_t num_queries, int64_t num_keys, at::Device device) {
  KeyDistances result;
  std::vector<at::Tensor> distances;
  int64_t num_distances = 0;
  for (const PositionRange& range : position_ranges(mask, num_keys)) {
    const int64_t count = num_queries + range.num_keys - 1, max_distance = range.max_distance(num_queries);
    distances.push_back(max_distance - at::arange(count, at::TensorOptions().dtype(at::kLong).device(device)));
    result.key_ranges.push_back({range.first_key, range.num_keys, num_distances});
    num_distances += count;
  }
  result.distances = distances.size() == 1 ? distances[0] : nn::cat(distances);
  return result;
}

at::Tensor gather_by_distance(const at::Tensor& x_by_distance, const std::vector<kernels::KeyRange>& key_ranges,
                              int64_t num_queries) {
  std::vector<at::Tensor> x;
  for (const kernels::KeyRange& range : key_ranges)
    // Window i of unfold() has the distances of query Tq - 1 - i.
    x.push_back(x_by_distance.narrow(1, range.first_row, num_queries + range.num_keys - 1)
                    .unfold(1, range.num_keys, 1)
                    .flip(1));
  return x.size() == 1 ? x[0] : nn::cat(x, -1);
}

}  // namespace mh::attention
