// Stop signals (base/signals.h) of the processes of a job: a signal to one process stops all of them.
#pragma once

#include "distributed/group.h"

namespace mh::distributed {

// Returns a stop signal that any process of the job has received, the same signal in all processes; 0 if there is none.
// All processes call this function together. `group` null: one process.
int agree_on_stop_signal(const Group* group);

// Two functions for callers that add the stop flags to another sum over the processes. set_stop_flag() sets flags[i] to
// 1 if this process has received the signal kStopSignals[i]; `flags`: (kStopSignals.size()) fp64. stop_signal_in()
// returns the first kStopSignals[i] for which flags[i], summed over all processes, is not 0; 0 if there is none.
void set_stop_flag(const at::Tensor& flags);
int stop_signal_in(const at::Tensor& flags);

}  // namespace mh::distributed
