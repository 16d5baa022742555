// The progress of a training run, an argument of regularisers and procedures.
#pragma once

#include <cstdint>

namespace mh::train {

struct TrainProgress {
  int64_t update = 0;        // number of completed updates; also the index of the next update, from 0
  int64_t epoch = 0;         // epoch of the next update, from 0
  int64_t schedule_end = 0;  // length of the schedule in updates: train.schedule.length, or train.length if not set
  // Returns the completed fraction of the learning-rate schedule; above 1 after the end of the schedule, 0 if
  // schedule_end is 0.
  double fraction() const {
    return schedule_end > 0 ? static_cast<double>(update) / static_cast<double>(schedule_end) : 0;
  }
};

}  // namespace mh::train
