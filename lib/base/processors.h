// The number of processors that the process may use.
#pragma once

#include <sched.h>

#include <thread>

namespace mh {

// Returns the number of processors in the affinity mask of the process (taskset, cgroup cpusets), at least 1.
// std::thread::hardware_concurrency() counts all processors of the machine.
inline int num_usable_processors() {
  cpu_set_t set;
  const int usable = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 0;
  const auto all = static_cast<int>(std::thread::hardware_concurrency());
  return usable > 0 ? usable : all > 0 ? all : 1;
}

}  // namespace mh
