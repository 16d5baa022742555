#include "data/sample.h"

#include <algorithm>
#include <set>

#include "base/error.h"
#include "base/random.h"

namespace mh::data {

// Implements Floyd's sampling algorithm.
std::vector<int64_t> draw_sample(int64_t count, int64_t all, int64_t seed) {
  RandomSequence random(RandomStream(static_cast<uint64_t>(seed), "sample"), 0, 0);
  std::set<int64_t> chosen;
  for (int64_t i = all - count; i < all; ++i) {
    const auto pick = static_cast<int64_t>(random.below(static_cast<uint64_t>(i) + 1));
    chosen.insert(chosen.count(pick) > 0 ? i : pick);
  }
  return {chosen.begin(), chosen.end()};
}

int64_t sample_size(const Sample& sample, int64_t all, const std::string& what, const char* next) {
  if (sample.at_most && all > 0) return std::min(sample.blocks, all);
  if (sample.blocks > all)
    throw Error(Exit::usage,
                Problem{"--blocks", str("at most ", std::max<int64_t>(0, all), ", ", what), str(sample.blocks), next});
  return sample.blocks;
}

}  // namespace mh::data
