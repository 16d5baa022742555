// The number of processors that the process may use.
#pragma once

#include <sched.h>

#include <thread>

namespace mh {

// Returns the number of processors in the affinity mask of the calling thread (taskset, cgroup cpusets), at least 1.
// std::thread::hardware_concurrency(), in contrast, counts all processors of the machine.
inline int num_usable_processors() {
  cpu_set_t cpus;
  const int num_allowed_processors = sched_getaffinity(0, sizeof cpus, &cpus) == 0 ? CPU_COUNT(&cpus) : 0;
  const auto num_machine_processors = static_cast<int>(std::thread::hardware_concurrency());
  return num_allowed_processors > 0 ? num_allowed_processors : num_machine_processors > 0 ? num_machine_processors : 1;
}

}  // namespace mh
