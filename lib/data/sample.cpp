#include "data/sample.h"

#include <algorithm>
#include <set>

#include "base/error.h"
#include "base/random.h"

namespace mh::data {

// Implements Floyd's sampling algorithm.
std::vector<int64_t> draw_sample(int64_t count, int64_t population_size, int64_t seed) {
  RandomSequence random(RandomStream(static_cast<uint64_t>(seed), "sample"), 0, 0);
  std::set<int64_t> sampled_indices;
  for (int64_t i = population_size - count; i < population_size; ++i) {
    const auto candidate = static_cast<int64_t>(random.uniform_below(static_cast<uint64_t>(i) + 1));
    sampled_indices.insert(sampled_indices.count(candidate) > 0 ? i : candidate);
  }
  return {sampled_indices.begin(), sampled_indices.end()};
}

int64_t sample_size(const SampleOptions& sample, int64_t population_size, const std::string& description,
                    const char* advice) {
  if (sample.is_default_sample && population_size > 0) return std::min(sample.blocks, population_size);
  if (sample.blocks > population_size)
    refuse_usage("--blocks", str("at most ", std::max<int64_t>(0, population_size), ", ", description),
                 str(sample.blocks), advice);
  return sample.blocks;
}

}  // namespace mh::data
