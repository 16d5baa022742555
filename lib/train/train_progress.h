// Where training stands, as far as terms of the loss and procedures depend on it.
#pragma once

#include <cstdint>

namespace mh::train {

struct TrainProgress {
  int64_t update = 0;  // from 0
  int64_t epoch = 0;   // from 0
  int64_t end = 0;     // the update where schedules end: train.schedule.length, or the run's length
  double fraction() const { return end > 0 ? static_cast<double>(update) / static_cast<double>(end) : 0; }
};

}  // namespace mh::train
