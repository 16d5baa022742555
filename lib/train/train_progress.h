// The progress of training that regularisers and procedures depend on.
#pragma once

#include <cstdint>

namespace mh::train {

struct TrainProgress {
  int64_t update = 0;  // from 0
  int64_t epoch = 0;   // from 0
  int64_t end = 0;     // update at which schedules end: train.schedule.length, or the length of the run
  double fraction() const { return end > 0 ? static_cast<double>(update) / static_cast<double>(end) : 0; }
};

}  // namespace mh::train
