// The relative change that tables of analyses report in percent.
#pragma once

#include <limits>

namespace mh::analysis {

// Returns the change from `baseline` to `value` in percent of `baseline`. NaN if `baseline` is 0, also if `value` is 0,
// since no percentage of 0 describes a change.
inline double percent_change(double value, double baseline) {
  return baseline != 0 ? 100 * (value - baseline) / baseline : std::numeric_limits<double>::quiet_NaN();
}

}  // namespace mh::analysis
