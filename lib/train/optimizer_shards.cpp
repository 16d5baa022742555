#include "train/optimizer_shards.h"

#include <algorithm>

namespace mh::train {

ElementRange equal_range(int64_t num_elements, int64_t num_ranges, int64_t index) {
  const int64_t quotient = num_elements / num_ranges, remainder = num_elements % num_ranges;
  const int64_t begin = index * quotient + std::min(index, remainder);
  return {begin, begin + quotient + (index < remainder ? 1 : 0)};
}

bool has_divisible_master(const nn::ParameterTraits& traits) {
  return traits.trainable && traits.is_product_operand && !traits.is_lookup_table;
}

OptimizerShards::OptimizerShards(const std::vector<int64_t>& sizes, int num_ranks) : num_ranks_(num_ranks) {
  for (const int64_t size : sizes) begins_.push_back(begins_.back() + size);
}

ElementRange OptimizerShards::of(size_t parameter_index, int rank) const {
  const ElementRange range = equal_range(num_elements(), num_ranks_, rank);
  const int64_t parameter_begin = begins_[parameter_index], parameter_end = begins_[parameter_index + 1];
  const int64_t begin = std::max(range.begin, parameter_begin), end = std::min(range.end, parameter_end);
  return begin < end ? ElementRange{begin - parameter_begin, end - parameter_begin} : ElementRange{};
}

}  // namespace mh::train
