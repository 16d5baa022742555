// The bucket of a distance between query and key in the position bias of T5.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace mh::attention {

// Returns the bucket, from 0 to buckets - 1, of `distance`, the position of the query minus the position of the key.
// With e = buckets / 2 in one direction: distances below e have a bucket each; larger distances δ have the bucket e +
// ⌊e ln(δ/e) / ln(max_distance/e)⌋, at most the last one. `two_sided`: each direction has buckets / 2 buckets, later
// keys (distance < 0) the second half; otherwise negative distances have the bucket of distance 0. The logarithm is
// computed in fp32, as by the released models, since its rounding decides the bucket at some distances. Requires at
// least 2 buckets in each direction, and max_distance > e.
inline int64_t t5_bucket(int64_t distance, int64_t buckets, int64_t max_distance, bool two_sided) {
  const int64_t buckets_per_direction = two_sided ? buckets / 2 : buckets, num_exact = buckets_per_direction / 2;
  const int64_t first = two_sided && distance < 0 ? buckets_per_direction : 0,
                d = two_sided ? std::abs(distance) : std::max<int64_t>(distance, 0);
  if (d < num_exact) return first + d;
  const auto log_ratio = std::log(static_cast<float>(d) / static_cast<float>(num_exact));
  const auto log_max_ratio =
      static_cast<float>(std::log(static_cast<double>(max_distance) / static_cast<double>(num_exact)));
  const auto step =
      static_cast<int64_t>(log_ratio / log_max_ratio * static_cast<float>(buckets_per_direction - num_exact));
  return first + std::min(num_exact + step, buckets_per_direction - 1);
}

}  // namespace mh::attention
